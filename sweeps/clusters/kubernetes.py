"""The settings of a RayJob on Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from sweeps.checks import check_tracking, failures, refuse, too_small
from sweeps.clusters.checks import STRICT, check_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """A RayJob of a Kubernetes cluster with the KubeRay operator, version 1.5.1 or later.

    What has no setting here goes through `pod`, `head_pod` and `worker_pod`, in Kubernetes' own words: volumes,
    variables from secrets, tolerations, node selectors, security contexts, pull secrets, the size of the head.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

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
    store: str = ""
    """The results folder as the pods see it."""
    tracking: str = ""
    """MLflow tracking URI as the head sees it; empty is that of the sweep."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of all pods. They stand in the manifest: no secrets."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of the RayJob, such as Kueue's `kueue.x-k8s.io/queue-name`."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """A pod template that is merged into those of head and workers: mappings key by key, lists by the `name` of their
    entries. A container without a name is Ray's."""
    head_pod: Mapping[str, Any] = field(default_factory=dict)
    worker_pod: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check numbers, and that the pod templates are such."""
        problems = too_small(self, cpus_per_worker=1, workers=0, max_workers=0, gpus_per_worker=0)
        if self.max_workers and self.max_workers < self.workers:
            problems.append(f"max_workers must be at least workers ({self.workers}), got {self.max_workers}")
        if not self.max_workers and not self.workers:
            problems.append("workers must be at least 1 where max_workers is 0")
        for name in ("pod", "head_pod", "worker_pod"):
            if unknown := getattr(self, name).keys() - {"metadata", "spec"}:
                problems.append(f"{name} is a pod template with metadata and spec, got {', '.join(sorted(unknown))}")
        problems += failures(lambda: check_tracking(self.tracking or "none"))
        refuse(problems + check_environment(self.environment))
