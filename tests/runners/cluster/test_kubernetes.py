"""The manifest against the schema that KubeRay publishes, and what `kubectl` gets."""

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster import kubernetes
from goal_sweep.runners.cluster.submission import EXAMPLES
from tests.helpers.cluster_cases import job

SCHEMA = Path(__file__).parent / "kuberay" / "rayjob-v1.schema.json.gz"
LEAST = ("kubernetes.image=i:1", "kubernetes.store=/r/s", "kubernetes.mounts=[{name: r, mountPath: /r}]")
FULL = f"kubernetes={json.dumps(YAML(typ='safe').load(EXAMPLES / 'kubernetes.yaml')['kubernetes'])}"


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
    loaded: dict[str, Any] = YAML(typ="safe").load(kubernetes.render(job(tmp_path, *overrides)))
    return loaded


def pods(tmp_path: Path, *overrides: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The pod templates of the head and the workers."""
    cluster = manifest(tmp_path, *overrides)["spec"]["rayClusterSpec"]
    return cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]


@pytest.mark.parametrize("settings", [LEAST, (FULL,)], ids=["least", "full"])
def test_the_manifest_is_valid(settings: tuple[str, ...], schema: Any, tmp_path: Path) -> None:
    ray_job = manifest(tmp_path, *settings)
    assert [error.message for error in schema.iter_errors(ray_job)] == []
    assert (ray_job["apiVersion"], ray_job["kind"]) == ("ray.io/v1", "RayJob")


def test_the_sweep_file_arrives_unchanged_and_goes_with_the_job(tmp_path: Path) -> None:
    head, _ = pods(tmp_path, *LEAST)
    ((key, text),) = head["metadata"]["annotations"].items()
    assert text == job(tmp_path, *LEAST).sweep_text
    (volume,) = (one for one in head["spec"]["volumes"] if one["name"] == "sweep")
    (item,) = volume["downwardAPI"]["items"]
    assert item == {"path": "sweep.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
    (mount,) = (one for one in head["spec"]["containers"][0]["volumeMounts"] if one["name"] == "sweep")
    assert f"launch {mount['mountPath']}/sweep.yaml " in manifest(tmp_path, *LEAST)["spec"]["entrypoint"]


def test_the_example_runs_workers_alone_on_spot_nodes_with_gpus_and_secrets_are_references(tmp_path: Path) -> None:
    spec = manifest(tmp_path, FULL)["spec"]["rayClusterSpec"]
    head, worker = (pod["spec"] for pod in pods(tmp_path, FULL))
    assert "nodeSelector" not in head
    assert worker["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    assert [one["key"] for one in worker["tolerations"]] == ["nvidia.com/gpu", "cloud.google.com/gke-spot"]
    assert {one["securityContext"]["fsGroup"] for one in (head, worker)} == {1000}
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert (spec["authOptions"], spec["workerGroupSpecs"][0]["replicas"]) == ({"mode": "token"}, 2)
    for pod in (head, worker):
        variables = {one["name"]: one for one in pod["containers"][0]["env"]}
        reference = {"secretKeyRef": {"name": "mlflow", "key": "password"}}
        assert variables["MLFLOW_TRACKING_PASSWORD"]["valueFrom"] == reference
        assert variables["GOAL_SWEEP_CODE"]["value"] == "0123456789abcdef"
        assert {"results", "data", "shared-memory"} <= {one["name"] for one in pod["volumes"]}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("kubernetes.image=''", "cluster.kubernetes.image is needed"),
        ("kubernetes.store=''", "must be the results folder as the pods see it"),
        ("kubernetes.store=/elsewhere", "must be the results folder as the pods see it"),
        ("kubernetes.mounts=[{name: r, mountPath: /r, readOnly: true}]", "must be the results folder"),
    ],
)
def test_a_job_that_could_not_keep_its_results_or_train_is_refused(settings: str, said: str, tmp_path: Path) -> None:
    assert kubernetes.check(job(tmp_path, *LEAST)) == []
    with pytest.raises(ConfigError, match=said):
        kubernetes.check(job(tmp_path, *LEAST, settings))
