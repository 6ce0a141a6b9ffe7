"""The settings of a RayJob on Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from sweeps.checks import refuse
from sweeps.clusters.checks import (
    STRICT,
    at_least,
    check_credentials,
    check_environment,
    check_variables,
    one_line,
)

_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|[kMGTPE]i?)?")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_REFERENCE = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeConfig:
    """A volume of a Kubernetes job, by reference."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    path: str
    """Where the containers see it."""
    claim: str
    """A PersistentVolumeClaim of the namespace. That of the store must allow ReadWriteMany."""
    read_only: bool = False

    def __post_init__(self) -> None:
        """Check that its path is absolute."""
        refuse([] if self.path.startswith("/") else [f"path must be absolute, got {self.path!r}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.1 or later.

    What has no setting here goes through `pod`, `head_pod` and `worker_pod`, in Kubernetes' own words: tolerations,
    node selectors, security contexts, pull secrets, further volumes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    IN_SWEEP: ClassVar[frozenset[str]] = frozenset(
        (
            *("workers", "max_workers", "gpus_per_worker", "gpu_resource", "cpus_per_worker", "memory_per_worker"),
            *("head_cpus", "head_memory", "store", "tracking", "grace_period", "retries", "keep"),
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
    """With 8Gi of /dev/shm, which counts as memory of the pod."""
    head_cpus: int = 2
    head_memory: str = "8Gi"
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
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the RayJob, such as Kueue's `kueue.x-k8s.io/queue-name`."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """A pod template that is merged into those of head and workers: mappings key by key, lists by the `name` of their
    entries. A container without a name is Ray's."""
    head_pod: Mapping[str, Any] = field(default_factory=dict)
    worker_pod: Mapping[str, Any] = field(default_factory=dict)
    grace_period: int = 60
    """Seconds that a pod gets to save when it must go."""
    retries: int = 2
    """How often KubeRay starts a new Ray cluster for the job after a failure."""
    keep: int = 600
    """Seconds that the pods are kept after the end."""

    def __post_init__(self) -> None:
        """Check names, quantities and references."""
        problems = at_least(self, 1, "cpus_per_worker", "head_cpus")
        problems += at_least(self, 0, "workers", "max_workers", "gpus_per_worker", "retries", "keep")
        problems += one_line(self, "image", "context", "store", "tracking", "gpu_resource")
        if self.max_workers and self.max_workers < self.workers:
            problems.append(f"max_workers must be at least workers ({self.workers}), got {self.max_workers}")
        if not self.max_workers and not self.workers:
            problems.append("workers must be at least 1 where max_workers is 0")
        if self.grace_period < 30:
            problems.append(f"grace_period must be at least 30 seconds, got {self.grace_period}")
        if not _LABEL.fullmatch(self.namespace):
            problems.append(f"namespace must be a Kubernetes name, got {self.namespace!r}")
        for name in ("memory_per_worker", "head_memory"):
            if not _QUANTITY.fullmatch(getattr(self, name)):
                problems.append(f"{name} must be a quantity such as 32Gi, got {getattr(self, name)!r}")
        for name in ("pod", "head_pod", "worker_pod"):
            if unknown := getattr(self, name).keys() - {"metadata", "spec"}:
                problems.append(f"{name} is a pod template with metadata and spec, got {', '.join(sorted(unknown))}")
        problems += [
            f"secrets: {name} must refer to a secret as name/key"
            for name, reference in self.secrets.items()
            if not _REFERENCE.fullmatch(reference)
        ]
        problems += [
            f"secrets: {name} is given in environment too" for name in self.secrets if name in self.environment
        ]
        problems += check_environment(self.environment) + check_variables("secrets", self.secrets)
        refuse(problems + check_credentials(self.tracking))
