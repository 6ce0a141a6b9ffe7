"""Where and how a sweep runs as a batch job: the `cluster` block of a sweep file, and the site file.

Nothing here can change a result, so no id depends on it, and neither the store nor MLflow keeps it with a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from sweeps.clusters.checks import STRICT
from sweeps.clusters.kubernetes import KubernetesConfig, VolumeConfig
from sweeps.clusters.ray import RayConfig
from sweeps.clusters.slurm import ContainerConfig, SlurmConfig

__all__ = [
    "ClusterConfig",
    "ContainerConfig",
    "KubernetesConfig",
    "RayConfig",
    "SlurmConfig",
    "VolumeConfig",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The settings of each kind of cluster: what the site file says, and the sweep's own on top of it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
