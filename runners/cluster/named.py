"""Environment variables that a sweep names, for clusters whose nodes do not have the folders of this machine."""

from __future__ import annotations

import re
from collections.abc import Collection

from goal_core.basics.errors import ConfigError
from runners.cluster.backend import Job

_WITHOUT_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_named(job: Job, kind: str, known: Collection[str]) -> None:
    """Refuse a sweep that names a variable which the nodes will not have.

    Args:
        job: the job.
        kind: the kind of cluster.
        known: the variables that its settings give to the nodes.

    Raises:
        ConfigError: names the variables that are missing.
    """
    missing = sorted(set(_WITHOUT_DEFAULT.findall(job.sweep_text)) - set(known))
    if missing:
        raise ConfigError(
            f"the sweep names {', '.join(missing)}; give the values for the cluster's nodes in "
            f"cluster.{kind}.environment"
        )
