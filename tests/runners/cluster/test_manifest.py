"""The manifest against the schema that KubeRay publishes, and against what a cluster would make of it."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from goal_sweep.runners.cluster.kubernetes import Kubernetes
from goal_sweep.runners.cluster.submission import example_site
from tests.helpers.cluster_cases import job

SCHEMA = Path(__file__).parent / "kuberay" / "rayjob-v1.schema.json.gz"
LEAST = ("kubernetes.image=i:1", "kubernetes.store=/r/s")
FULL = json.dumps(YAML(typ="safe").load(example_site("kubernetes"))["kubernetes"])


def closed(schema: Any) -> Any:
    """The schema with unknown keys refused where Kubernetes would drop them in silence."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(made.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("anyOf", None)
        made["type"] = ["integer", "string"]
    return made


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    content = closed(json.loads(gzip.decompress(SCHEMA.read_bytes())))
    content["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(content)


def manifest(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(Kubernetes().render(job(tmp_path, *overrides)))
    return loaded


def pods(tmp_path: Path, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod templates of the head and the workers."""
    cluster = manifest(tmp_path, *overrides)["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]


@pytest.mark.parametrize("settings", [LEAST, (f"kubernetes={FULL}",)], ids=["least", "full"])
def test_the_manifest_is_valid(settings: tuple[str, ...], schema: Any, tmp_path: Path) -> None:
    ray_job = manifest(tmp_path, *settings)
    assert [error.message for error in schema.iter_errors(ray_job)] == []
    assert (ray_job["apiVersion"], ray_job["kind"]) == ("ray.io/v1", "RayJob")


def test_the_schema_finds_mistakes(schema: Any, tmp_path: Path) -> None:
    ray_job = manifest(tmp_path, *LEAST)
    head = ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    head["tolerationss"] = []
    ray_job["spec"]["backoffLimit"] = "two"
    del ray_job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    found = [error.message for error in schema.iter_errors(ray_job)]
    assert len(found) == 2
    assert any("'template' is a required property" in one for one in found)


def test_the_sweep_file_arrives_unchanged_and_goes_with_the_job(tmp_path: Path) -> None:
    head, _ = pods(tmp_path, *LEAST)
    ((key, text),) = head["metadata"]["annotations"].items()
    spec = manifest(tmp_path, *LEAST)["spec"]
    assert (spec["shutdownAfterJobFinishes"], spec["ttlSecondsAfterFinished"] <= 3600) == (True, True)
    assert text == job(tmp_path, *LEAST).sweep_text
    (volume,) = (one for one in head["spec"]["volumes"] if one["name"] == "sweep")
    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": "sweep.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
    (mount,) = (one for one in head["spec"]["containers"][0]["volumeMounts"] if one["name"] == "sweep")
    assert f"{mount['mountPath']}/sweep.yaml" in manifest(tmp_path, *LEAST)["spec"]["entrypoint"]


def test_the_example_runs_workers_alone_on_spot_nodes_with_gpus(tmp_path: Path) -> None:
    spec = manifest(tmp_path, f"kubernetes={FULL}")["spec"]["rayClusterSpec"]
    head, worker = (pod["spec"] for pod in pods(tmp_path, f"kubernetes={FULL}"))
    assert "nodeSelector" not in head
    assert worker["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert "tolerations" not in head
    assert [one["key"] for one in worker["tolerations"]] == ["nvidia.com/gpu", "cloud.google.com/gke-spot"]
    assert {one["securityContext"]["fsGroup"] for one in (head, worker)} == {1000}
    for probe in ("livenessProbe", "readinessProbe"):  # those of KubeRay before 1.5.2 need wget in the image
        assert all("httpGet" in one["containers"][0][probe] for one in (head, worker))
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert (spec["enableInTreeAutoscaling"], spec["workerGroupSpecs"][0]["maxReplicas"]) == (True, 8)
    assert spec["authOptions"] == {"mode": "token"}
    assert ("automountServiceAccountToken" in head, worker["automountServiceAccountToken"]) == (False, False)


PASSED_THROUGH = {
    "labels": {"kueue.x-k8s.io/queue-name": "research"},
    "pod": {
        "metadata": {"labels": {"team": "vision"}},
        "spec": {
            "containers": [
                {
                    "resources": {"limits": {"ephemeral-storage": "10Gi"}},
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "env": [{"name": "RAY_worker_niceness", "value": "5"}, {"name": "MINE", "value": "1"}],
                }
            ],
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "shared-memory", "emptyDir": {"sizeLimit": "16Gi"}},
            ],
        },
    },
    "worker_pod": {"spec": {"priorityClassName": "low"}},
}


def test_an_autoscaler_is_told_and_so_is_the_driver_that_packs_for_it(tmp_path: Path) -> None:
    fixed, grows = (manifest(tmp_path, *LEAST, *more)["spec"] for more in ((), ("kubernetes.max_workers=8",)))
    assert "--devices" not in fixed["entrypoint"]
    assert "launch --devices 64 /" in grows["entrypoint"]  # of a sweep of 1 CPU, on workers of 8
    assert grows["rayClusterSpec"]["enableInTreeAutoscaling"]


def test_what_has_no_setting_is_passed_through(schema: Any, tmp_path: Path) -> None:
    settings = (*LEAST, *(f"kubernetes.{key}={json.dumps(value)}" for key, value in PASSED_THROUGH.items()))
    ray_job = manifest(tmp_path, *settings)
    assert [error.message for error in schema.iter_errors(ray_job)] == []
    assert ray_job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert ray_job["metadata"]["labels"]["app.kubernetes.io/name"] == "goal-sweep"
    head, worker = pods(tmp_path, *settings)
    assert ("priorityClassName" in head["spec"], worker["spec"]["priorityClassName"]) == (False, "low")
    for pod in (head, worker):
        assert pod["metadata"]["labels"] | {"team": "vision"} == pod["metadata"]["labels"]
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"]["ephemeral-storage"] == "10Gi"
        assert container["resources"]["limits"]["memory"]
        assert {"/scratch", "/dev/shm"} <= {one["mountPath"] for one in container["volumeMounts"]}
        variables = {one["name"]: one.get("value") for one in container["env"]}
        assert (variables["RAY_worker_niceness"], variables["MINE"]) == ("5", "1")
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}
        assert volumes["scratch"]["emptyDir"] == {}


def test_secrets_are_references(tmp_path: Path) -> None:
    head, _ = pods(tmp_path, f"kubernetes={FULL}")
    variables = {one["name"]: one for one in head["spec"]["containers"][0]["env"]}
    reference = {"secretKeyRef": {"name": "mlflow", "key": "password"}}
    assert variables["MLFLOW_TRACKING_PASSWORD"] == {"name": "MLFLOW_TRACKING_PASSWORD", "valueFrom": reference}
    assert variables["GOAL_SWEEP_CODE"]["value"] == "0123456789abcdef"


@pytest.mark.parametrize(
    ("statuses", "expected", "runs"), [([0], 0, 1), ([1], 1, 1), ([75, 75, 0], 0, 3), ([75] * 9, 75, 5)]
)
def test_a_driver_that_stopped_before_the_end_starts_again(
    statuses: list[int], expected: int, runs: int, tmp_path: Path
) -> None:
    entrypoint = manifest(tmp_path, *LEAST)["spec"]["entrypoint"]
    script = '#!/bin/sh\necho x >> runs; sed -n "$(wc -l < runs)p" statuses > now; exit $(cat now)\n'
    for name, text in (("python", script), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "statuses").write_text("".join(f"{status}\n" for status in statuses))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(shlex.split(entrypoint), cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, (tmp_path / "runs").read_text().count("x")) == (expected, runs)


def test_a_pod_that_must_go_lets_the_driver_save(tmp_path: Path) -> None:
    """The command of the head's preStop hook ends the driver, and neither itself nor anything else."""
    spec = pods(tmp_path, *LEAST)[0]["spec"]
    command = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    shown = (
        command[2].replace("sleep 25", "echo waited").replace("goal_sweep.runners.cli", f"runners.cli-{tmp_path.name}")
    )
    assert "runners.cli " not in shown  # it would end every launch on this machine
    driver = subprocess.Popen(["sh", "-c", "exec sleep 60", f"runners.cli-{tmp_path.name}"])
    named = subprocess.Popen(["bash", "-c", f"exec -a runners.cli-{tmp_path.name} sleep 60"])
    other = subprocess.Popen(["sleep", "60"])
    try:
        subprocess.run(["sleep", "0.3"], check=True)
        done = subprocess.run([command[0], command[1], shown], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "waited\n")
        assert named.wait(timeout=10) == -15
        assert other.poll() is None
    finally:
        for process in (driver, named, other):
            process.kill()
            process.wait()
