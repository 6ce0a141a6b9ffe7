"""Where and how a sweep runs as a batch job: the site file, and `--set cluster...` on top of it.

Nothing here can change a result, so no id depends on it, and neither the store nor MLflow keeps it with a sweep.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from sweeps.clusters.checks import STRICT
from sweeps.clusters.kubernetes import KubernetesConfig
from sweeps.clusters.ray import RayConfig
from sweeps.clusters.slurm import ContainerConfig, SlurmConfig

__all__ = ["ClusterConfig", "ContainerConfig", "KubernetesConfig", "RayConfig", "SlurmConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """The settings of each kind of cluster."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
