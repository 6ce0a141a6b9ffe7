"""The settings of a RayJob on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import ClassVar

from pydantic import ConfigDict

from goal_core.basics.errors import ConfigError
from sweeps.checks import refuse
from sweeps.clusters.checks import STRICT, VARIABLE, below, check_credentials, check_environment, one_line

_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|[kMGTPE]i?)?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(
    r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConfig:
    """A volume of a Kubernetes job, by reference."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    path: str
    """Where the containers see it."""
    claim: str = ""
    """A PersistentVolumeClaim of the namespace."""
    host_path: str = ""
    """Instead of a claim, a folder of every node."""
    read_only: bool = False

    def __post_init__(self) -> None:
        """Check that it has one source and an absolute path."""
        problems = [] if self.path.startswith("/") else [f"path must be absolute, got {self.path!r}"]
        if bool(self.claim) == bool(self.host_path):
            problems.append("claim: give either claim or host_path")
        refuse(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.1 or later."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(
        (
            *("workers", "max_workers", "gpus_per_worker", "gpu_resource", "cpus_per_worker", "memory_per_worker"),
            *("shared_memory", "head_cpus", "head_memory", "spot", "spot_selector", "spot_tolerations"),
            *("node_selector", "tolerations", "store", "tracking", "grace_period", "retries", "keep"),
        )
    )

    image: str = ""
    """Image with this version of goal-sweep and Ray, for the head and the workers."""
    namespace: str = "default"
    context: str = ""
    """Context of kubectl; empty takes the current one."""
    workers: int = 1
    """Worker pods at the start."""
    max_workers: int = 0
    """Largest number of workers; above `workers`, Ray's autoscaler starts them as needed. 0 is `workers`."""
    gpus_per_worker: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    """Name of a GPU among the node's resources."""
    cpus_per_worker: int = 8
    memory_per_worker: str = "32Gi"
    shared_memory: str = "8Gi"
    """Size of /dev/shm in each pod; it counts as memory of the pod."""
    head_cpus: int = 2
    head_memory: str = "8Gi"
    spot: bool = False
    """Whether workers run on spot nodes only; needs `spot_selector`. The head never does."""
    spot_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the provider's spot nodes, such as `cloud.google.com/gke-spot: "true"`."""
    spot_tolerations: tuple[str, ...] = ()
    """Taints of spot nodes that workers tolerate: `key=value:effect`, `key:effect`."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels that all nodes of the job must have."""
    tolerations: tuple[str, ...] = ()
    """Taints that all pods tolerate, such as `nvidia.com/gpu:NoSchedule`."""
    service_account: str = ""
    pull_secrets: tuple[str, ...] = ()
    """Names of the secrets with which images are pulled."""
    volumes: tuple[VolumeConfig, ...] = ()
    """Volumes of head and workers; the store and the data lie on them."""
    store: str = ""
    """The results folder as the pods see it."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of all pods. They stand in the manifest: no secrets."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values come from secrets of the namespace: `NAME: secret/key`."""
    grace_period: int = 60
    """Seconds that a pod gets to save when it must go."""
    retries: int = 2
    """How often KubeRay starts a new Ray cluster for the job after a failure."""
    keep: int = 600
    """Seconds that the pods are kept after the end."""

    def __post_init__(self) -> None:
        """Check names, quantities and references."""
        problems = [
            f"{name} must be at least 1, got {getattr(self, name)}"
            for name in below(self, 1, "cpus_per_worker", "head_cpus")
        ]
        problems += [
            f"{name} must not be negative, got {getattr(self, name)}"
            for name in below(self, 0, "workers", "max_workers", "gpus_per_worker", "retries", "keep")
        ]
        problems += one_line(self, "image", "context", "service_account", "store", "tracking", "pull_secrets")
        if self.max_workers and self.max_workers < self.workers:
            problems.append(f"max_workers must be at least workers ({self.workers}), got {self.max_workers}")
        if not self.max_workers and not self.workers:
            problems.append("workers must be at least 1 where max_workers is 0")
        if self.grace_period < 30:
            problems.append(f"grace_period must be at least 30 seconds, got {self.grace_period}")
        if not _LABEL.fullmatch(self.namespace):
            problems.append(f"namespace must be a Kubernetes name, got {self.namespace!r}")
        for name in ("memory_per_worker", "shared_memory", "head_memory"):
            if not _QUANTITY.fullmatch(getattr(self, name)):
                problems.append(f"{name} must be a quantity such as 32Gi, got {getattr(self, name)!r}")
        if self.gpus_per_worker and not _LABEL_KEY.fullmatch(self.gpu_resource):
            problems.append(f"gpu_resource must be a name such as nvidia.com/gpu, got {self.gpu_resource!r}")
        for name in ("node_selector", "spot_selector"):
            problems += [f"{name}: {problem}" for problem in _label_problems(getattr(self, name))]
        if self.spot and not self.spot_selector:
            problems.append("spot needs spot_selector, the labels of the provider's spot nodes")
        for name in ("tolerations", "spot_tolerations"):
            for text in getattr(self, name):
                try:
                    toleration(text)
                except ConfigError as error:
                    problems.append(f"{name}: {error}")
        for name, reference in self.secrets.items():
            if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+", reference):
                problems.append(f"secrets: {name} must refer to a secret as name/key")
        paths = [PurePosixPath(volume.path) for volume in self.volumes]
        problems += [
            f"volumes: {path} is given more than once" for path in dict.fromkeys(paths) if paths.count(path) > 1
        ]
        problems += [*check_environment(self.environment), *check_credentials(self.tracking)]
        problems += [
            f"secrets: {name!r} is no variable's name" for name in self.secrets if not VARIABLE.fullmatch(name)
        ]
        problems += [
            f"secrets: {name} is given in environment too" for name in self.secrets if name in self.environment
        ]
        refuse(problems)


def toleration(text: str) -> dict[str, str]:
    """Read a taint to tolerate, written as kubectl writes taints.

    Args:
        text: ``key=value:effect``, ``key:effect`` (any value), or ``key`` (any value and effect).

    Returns:
        The toleration in Kubernetes' form.

    Raises:
        ConfigError: the text has another form.
    """
    match = re.fullmatch(r"([\w./-]+)(?:=([\w.-]*))?(?::(NoSchedule|PreferNoSchedule|NoExecute))?", text)
    if match is None:
        raise ConfigError(
            f"write key=value:effect, with effect NoSchedule, PreferNoSchedule or NoExecute; got {text!r}"
        )
    key, value, effect = match.groups()
    found = {"key": key, "operator": "Exists" if value is None else "Equal"}
    found |= {} if value is None else {"value": value}
    return found | ({"effect": effect} if effect else {})


def _label_problems(labels: Mapping[str, str]) -> list[str]:
    """Which labels of nodes Kubernetes would refuse."""
    problems = [f"{key!r} is not a valid label key" for key in labels if not _LABEL_KEY.fullmatch(key)]
    return problems + [
        f"{value!r} is not a valid value of the label {key}"
        for key, value in labels.items()
        if not _LABEL_VALUE.fullmatch(value)
    ]
