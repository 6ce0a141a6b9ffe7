"""The site file: the settings of clusters, which no sweep file may hold, and `--set cluster...` on top of them.

They decide which code runs, what is sent and who receives it. Sweep files are passed on, and are safe to submit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweeps.clusters import ClusterConfig
from sweeps.reading.merging import apply_override
from sweeps.reading.paths import expand_environment
from sweeps.reading.tree import Node, Problem, Where
from sweeps.reading.validation import validate
from sweeps.reading.yaml_file import read_mapping

BLOCK = "cluster"
_EXPANDED = re.compile(r"(?!cluster\.slurm\.setup\.).*")
"""All but shell of the node, where `${VAR}` means a variable of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The settings under the name by which `--set` calls them."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)


def read_site(
    site: Path | None,
    overrides: Sequence[str],
    environ: Mapping[str, str],
    problems: list[Problem],
    sources: list[str],
) -> ClusterConfig | None:
    """Check the settings of clusters.

    Args:
        site: the site file; None where there is none.
        overrides: as of `--set`; the key of each begins with `cluster`.
        environ: the environment that `${VAR}` refers to, in all values but the lines of `setup`.
        problems: receives what is wrong. The key path begins with `cluster` in `--set`, and not in a site file.
        sources: receives the site file's name.

    Returns:
        The settings, or None when anything is wrong.
    """
    already = len(problems)
    settings = Node({}, Where("")) if site is None else read_mapping(site, "a site file", problems, sources)
    if settings is None:
        return None
    root = Node({BLOCK: settings}, settings.where)
    for override in overrides:
        root = apply_override(root, override, problems)
    found: list[Problem] = []
    root = expand_environment(root, environ, found, allowed=_EXPANDED, strict=False)
    built = validate(root, _Settings, found)
    for problem in found:
        is_in_file = problem.where.source == settings.where.source
        path = problem.path.removeprefix(f"{BLOCK}.") if is_in_file else problem.path
        problems.append(replace(problem, path=path))
    return built.cluster if built is not None and len(problems) == already else None
