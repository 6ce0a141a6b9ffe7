from __future__ import annotations

from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.sweeps.clusters import (
    ContainerConfig,
    KubernetesConfig,
    RayConfig,
    SlurmConfig,
)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        ({"gpus_per_node": -1}, "gpus_per_node must be at least 0"),
        ({"save_before": 5}, "save_before must be at least 30"),
        ({"array": 2, "nodes": 2}, "array needs nodes: 1"),
        ({"gpu_type": "a100"}, "gpu_type needs gpus_per_node"),
        ({"partition": "a\nrm -r ~"}, "partition must be one line"),
        ({"options": ("-C a100",)}, "options must hold one option each, which begins with --, got '-C a100'"),
        ({"options": ("--signal=B:TERM@5",)}, "options may not hold --signal"),
        ({"options": ("--comment=a\n#SBATCH --uid=0",)}, "options must hold one option each"),
        (
            {"options": ("--comment=a\r#SBATCH --uid=0",)},
            "options must hold one option each",
        ),
        ({"options": ("--clusters=other",)}, "options may not hold --clusters"),
        ({"environment": {"HF_TOKEN": "x"}}, "environment must not hold secrets such as HF_TOKEN"),
        ({"environment": {"A-B": "x"}}, "environment: 'A-B' is no variable's name"),
        ({"environment": {"A": "x\ny"}}, "environment: the value of A must be one line"),
        ({"pass_environment": ("A=1",)}, "pass_environment: 'A=1' is no variable's name"),
    ],
)
def test_settings_of_slurm_are_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SlurmConfig(**settings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (RayConfig, {"address": "head:6379"}, "address must be the dashboard's"),
        (RayConfig, {"address": "http://me:secret@head:8265"}, "address must be the dashboard's"),
        (RayConfig, {"runtime_env": {"env_vars": {"A": "b"}}}, "env_vars has a setting of its own"),
        (RayConfig, {"environment": {"API_KEY": "x"}}, "environment must not hold secrets"),
        (KubernetesConfig, {"workers": 0}, "workers must be at least 1, got 0"),
        (KubernetesConfig, {"worker_pod": {"volumes": []}}, "worker_pod: volumes comes from other settings"),
        (ContainerConfig, {"image": ""}, "image must not be empty"),
        (ContainerConfig, {"image": "i.sif", "mounts": ("data",)}, "mounts must be absolute, got 'data'"),
    ],
)
def test_other_settings_are_refused_by_name(kind: type, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**settings)
    assert said in str(refused.value)


def test_other_options_of_sbatch_are_accepted() -> None:
    given = ("--constraint=a100", "--constraint a100", "--comment='two words'", "--exclusive", "--mem-per-gpu=8G")
    assert SlurmConfig(options=given).options == given
