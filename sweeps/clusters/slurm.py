"""The settings of a Slurm job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from sweeps.checks import refuse, too_small
from sweeps.clusters.checks import STRICT, check_environment, check_variables

_OURS = (
    *("--array", "--output", "--error", "--open-mode", "--signal", "--requeue", "--no-requeue", "--export", "--chdir"),
    *("--dependency", "--parsable", "--hold", "--wait", "--clusters", "--wrap", "--test-only", "--job-name"),
)
"""Options of sbatch that the script needs as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerConfig:
    """A container image in which a Slurm job runs, by Apptainer."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    image: str
    """A file, or what Apptainer accepts in its place."""
    mounts: tuple[str, ...] = ()
    """Folders of the node that the container sees: `/path` or `/path:/path/inside`. The store must be among them."""
    options: tuple[str, ...] = ()
    """Further options of `apptainer exec`."""

    def __post_init__(self) -> None:
        """Check that there is an image and that mounts are absolute."""
        problems = [] if self.image else ["image must not be empty"]
        problems += [f"mounts must be absolute, got {one!r}" for one in self.mounts if not one.startswith("/")]
        refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmConfig:
    """A job of a Slurm cluster whose nodes share the folder of the store with the machine that submits."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    nodes: int = 1
    """Nodes of the job. More than one are joined by Ray."""
    gpus_per_node: int = 0
    """GPUs of each node; 0 trains on the CPU."""
    gpu_type: str = ""
    """As the site names it, such as `a100`; empty takes any."""
    cpus_per_node: int = 1
    """CPU cores of each node."""
    memory_per_node: str = ""
    """Such as `64G`; empty takes the partition's default."""
    time: str = ""
    """Time limit of one run, `hours:minutes:seconds` or `days-hours:minutes`; empty takes the partition's default."""
    save_before: int = 120
    """Seconds before the time limit at which every training saves and the job goes back to the queue."""
    partition: str = ""
    """Empty takes the site's default, as for `account` and `qos`."""
    account: str = ""
    qos: str = ""
    options: tuple[str, ...] = ()
    """Further options of `sbatch`, such as `--constraint=a100`."""
    array: int = 0
    """Number of independent jobs that share the store, each on one node and without Ray between them; 0 is one job."""
    modules: tuple[str, ...] = ()
    """Environment modules to load."""
    setup: tuple[str, ...] = ()
    """Lines of shell that prepare each node, such as the activation of an environment."""
    python: str = ""
    """Python that has goal-sweep; empty takes the one that submits, or `python3` in a container."""
    container: ContainerConfig | None = None
    """An image to run in; none runs on the node itself."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the job, written into its script. No secrets."""
    pass_environment: tuple[str, ...] = ()
    """Names of variables that the job takes from the submitting shell. Slurm keeps their values, no file does."""

    def __post_init__(self) -> None:
        """Check each setting, and those that depend on each other."""
        problems = too_small(self, nodes=1, cpus_per_node=1, gpus_per_node=0, array=0, save_before=30)
        if self.gpu_type and not self.gpus_per_node:
            problems.append("gpu_type needs gpus_per_node")
        if self.array and self.nodes > 1:
            problems.append(f"array needs nodes: 1, because its jobs are independent; got nodes: {self.nodes}")
        for name in ("gpu_type", "memory_per_node", "time", "partition", "account", "qos", "python"):
            if not str(getattr(self, name)).isprintable():
                problems.append(f"{name} must be one line of text, got {getattr(self, name)!r}")
        for option in self.options:
            if not option.startswith("--") or not option.isprintable():
                problems.append(f"options must hold one option each, which begins with --, got {option!r}")
            elif (name := re.split("[= ]", option)[0]) in _OURS:
                problems.append(f"options may not hold {name}, because the job needs its own")
        problems += check_environment(self.environment) + check_variables("pass_environment", self.pass_environment)
        refuse(problems)
