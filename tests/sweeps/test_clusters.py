from __future__ import annotations

import pytest

from goal_core.errors import ConfigError
from sweeps.clusters import (
    ContainerConfig,
    KubernetesConfig,
    RayConfig,
    SlurmConfig,
    VolumeConfig,
    toleration,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24:00:00", 86400),
        ("2-12:30", 2 * 86400 + 12 * 3600 + 1800),
        ("1-00:00:05", 86405),
        ("90:00:00", 324000),
        ("", None),
    ],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text: str, seconds: int | None) -> None:
    assert SlurmConfig(time=text).seconds == seconds


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        ({"gpus_per_node": -1}, "gpus_per_node must not be negative"),
        ({"time": "soon"}, "time must be written as 24:00:00 or 2-12:00, got 'soon'"),
        ({"time": "90:00"}, "time must be written as 24:00:00 or 2-12:00, got '90:00'"),
        ({"time": "0:03:00"}, "time must be at least 120 seconds longer than save_before (120)"),
        ({"save_before": 5}, "save_before must be at least 30 seconds"),
        ({"array": 2, "nodes": 2}, "array needs nodes: 1"),
        ({"array_at_once": 2}, "array_at_once needs array"),
        ({"gpu_type": "a100"}, "gpu_type needs gpus_per_node"),
        ({"memory_per_node": "64GB"}, "memory_per_node must be a whole number with K, M, G or T, got '64GB'"),
        ({"options": ("-C a100",)}, "options must each begin with --, got '-C a100'"),
        ({"options": ("--signal=B:TERM@5",)}, "options may not hold --signal"),
        ({"options": ("--comment=a\n#SBATCH --uid=0",)}, "options must each begin with --"),
        ({"partition": "gpu\nrm"}, "partition must be one line"),
        ({"setup": ("a\nb",)}, "setup must be one line each"),
        ({"environment": {"HF_TOKEN": "x"}}, "environment must not hold secrets such as HF_TOKEN"),
        ({"environment": {"A-B": "x"}}, "environment: 'A-B' is no variable's name"),
        ({"environment": {"A": "x\ny"}}, "environment: the value of A must be one line"),
        ({"pass_environment": ("A=1",)}, "pass_environment: 'A=1' is no variable's name"),
    ],
)
def test_settings_of_slurm_are_refused_by_name(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SlurmConfig(**settings)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "settings", "said"),
    [
        (RayConfig, {"address": "head:6379"}, "address must be the dashboard's"),
        (RayConfig, {"address": "http://me:secret@head:8265"}, "address must be the dashboard's"),
        (RayConfig, {"pip": ("timm",), "conda": "goal"}, "pip and conda exclude each other"),
        (RayConfig, {"environment": {"API_KEY": "x"}}, "environment must not hold secrets"),
        (KubernetesConfig, {"namespace": "My Space"}, "namespace must be a Kubernetes name"),
        (KubernetesConfig, {"max_workers": 1, "workers": 2}, "max_workers must be at least workers (2), got 1"),
        (KubernetesConfig, {"workers": 0}, "workers must be at least 1 where max_workers is 0"),
        (KubernetesConfig, {"spot": True}, "spot needs spot_selector"),
        (KubernetesConfig, {"secrets": {"A": "value"}}, "secrets: A must refer to a secret as name/key"),
        (KubernetesConfig, {"tolerations": ("a b",)}, "tolerations: write key=value:effect"),
        (KubernetesConfig, {"memory_per_worker": "lots"}, "memory_per_worker must be a quantity such as 32Gi"),
        (KubernetesConfig, {"grace_period": 5}, "grace_period must be at least 30 seconds"),
        (
            KubernetesConfig,
            {"volumes": (VolumeConfig(path="/a", claim="x"), VolumeConfig(path="/a/", claim="y"))},
            "volumes: /a is given more than once",
        ),
        (VolumeConfig, {"path": "/a"}, "claim: give either claim or host_path"),
        (VolumeConfig, {"path": "a", "claim": "x"}, "path must be absolute"),
        (ContainerConfig, {"image": ""}, "image must not be empty"),
        (ContainerConfig, {"image": "i.sif", "mounts": ("data",)}, "mounts must be absolute, got 'data'"),
    ],
)
def test_other_settings_are_refused_by_name(kind: type, settings: dict, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kind(**settings)
    assert said in str(refused.value)


def test_a_taint_is_tolerated_as_kubectl_writes_it() -> None:
    assert toleration("a/b=c:NoSchedule") == {"key": "a/b", "operator": "Equal", "value": "c", "effect": "NoSchedule"}
    assert toleration("a:NoExecute") == {"key": "a", "operator": "Exists", "effect": "NoExecute"}
    assert toleration("a") == {"key": "a", "operator": "Exists"}
