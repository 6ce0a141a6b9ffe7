"""The settings of a job of a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from sweeps.checks import check_tracking, failures, refuse
from sweeps.clusters.checks import STRICT, check_environment

_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """A job of a running Ray cluster, through Ray's Jobs API."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    address: str = ""
    """Address of the head's dashboard, such as `http://head:8265`."""
    store: str = ""
    """The results folder as the cluster's nodes see it; empty is that of the sweep."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    code: Literal["ship", "installed"] = "ship"
    """`ship` sends this goal-sweep with its registered objectives; `installed` uses the cluster's and compares it."""
    files: tuple[str, ...] = ()
    """Further files and folders to send; they lie beside the sweep file, and Python modules can be imported."""
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    """Further parts of Ray's runtime environment, such as `pip: [timm]` or `conda: NAME`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the driver and the workers. Ray's dashboard shows them: no secrets."""

    def __post_init__(self) -> None:
        """Check the address, and that nothing holds a secret."""
        problems = []
        if self.address and not re.fullmatch(r"https?://[^/\s@]+/?", self.address):
            problems.append(f"address must be the dashboard's, such as http://head:8265, got {self.address!r}")
        if taken := self.runtime_env.keys() & {"working_dir", "env_vars", "py_modules"}:
            problems.append(f"runtime_env: {', '.join(sorted(taken))} has a setting of its own: files, environment")
        if _PASSWORD.search(str(dict(self.runtime_env))):
            problems.append("runtime_env must not hold passwords, because Ray's dashboard shows it")
        problems += failures(lambda: check_tracking(self.tracking or "none"))
        refuse([*problems, *check_environment(self.environment)])
