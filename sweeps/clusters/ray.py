"""The settings of a job of a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import ConfigDict

from sweeps.checks import refuse
from sweeps.clusters.checks import STRICT, check_credentials, check_environment, one_line

_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConfig:
    """A job of a running Ray cluster, through Ray's Jobs API."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(("store", "tracking"))

    address: str = ""
    """Address of the head's dashboard, such as `http://head:8265`."""
    token_file: str = ""
    """A file with the cluster's token; empty uses RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or `~/.ray/auth_token`."""
    store: str = ""
    """The results folder as the cluster's nodes see it; empty is that of the sweep."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    code: Literal["ship", "installed"] = "ship"
    """`ship` sends this goal-sweep with its registered objectives; `installed` uses the cluster's and compares it."""
    files: tuple[str, ...] = ()
    """Further files and folders to send; they lie beside the sweep file, and Python modules can be imported."""
    pip: tuple[str, ...] = ()
    """Packages that Ray installs on each node for this job."""
    conda: str = ""
    """An environment of that name on each node."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the driver and the workers. Ray's dashboard shows them: no secrets."""

    def __post_init__(self) -> None:
        """Check the address, and that only one kind of environment is asked for."""
        problems = []
        if self.address and not re.fullmatch(r"https?://[^/\s@]+/?", self.address):
            problems.append(f"address must be the dashboard's, such as http://head:8265, got {self.address!r}")
        if self.pip and self.conda:
            problems.append("pip and conda exclude each other")
        problems += one_line(self, "token_file", "store", "tracking", "conda", "pip", "files")
        problems += check_credentials(self.tracking)
        if any(_PASSWORD.search(package) for package in self.pip):
            problems.append("pip must not hold passwords, because Ray's dashboard shows it")
        refuse([*problems, *check_environment(self.environment)])
