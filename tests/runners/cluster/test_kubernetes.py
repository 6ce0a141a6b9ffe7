from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster.backend import ClusterError, Job
from goal_sweep.runners.cluster.kubernetes import Kubernetes, stream_command
from tests.helpers.cluster_cases import Commands, job, refusal, submission

PLACE = {"context": "lab", "namespace": "research"}
VOLUME = "kubernetes.pod={spec: {containers: [{volumeMounts: [{name: r, mountPath: /r}]}]}}"
LEAST = ("kubernetes.image=i:1", "kubernetes.store=/r/s", VOLUME)
START = "kubectl --context=lab --namespace=research"


def made(tmp_path: Path, *more: str) -> Job:
    store = tmp_path / "store"
    found = job(tmp_path, *LEAST, "kubernetes.context=lab", "kubernetes.namespace=research", *more, store=store)
    found.folder.mkdir(parents=True, exist_ok=True)
    return found


def test_the_manifest_is_created_as_printed(tmp_path: Path) -> None:
    commands, sent = Commands(kubectl="created"), made(tmp_path)
    assert Kubernetes(commands).submit(sent) == sent.id
    assert commands.given == [(f"{START} create --filename=-", Kubernetes().render(sent))]
    assert (sent.folder / "rayjob.yaml").read_text() == Kubernetes().render(sent)


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    said = 'error: unable to recognize "STDIN": no matches for kind "RayJob" in version "ray.io/v1"'
    with pytest.raises(ClusterError) as refused:
        Kubernetes(Commands(kubectl=refusal(said))).submit(made(tmp_path))
    assert str(refused.value) == f"cannot submit to Kubernetes: {said}"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, ("pending", "New", None)),
        ({"jobDeploymentStatus": "Initializing"}, ("pending", "Initializing", None)),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, ("running", "Running (RUNNING)", None)),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, ("ended", "Complete (SUCCEEDED)", 0)),
        (
            {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": "exit\n code 1"},
            ("ended", "Failed (FAILED): exit code 1", None),
        ),
    ],
)
def test_the_state_is_that_of_the_rayjob(status: dict[str, str], expected: tuple[Any, ...], tmp_path: Path) -> None:
    commands = Commands(kubectl=json.dumps({"status": status}))
    state = Kubernetes(commands).state(submission("kubernetes", **PLACE), tmp_path)
    assert (state.phase, state.said, state.status) == expected
    assert commands.given == [(f"{START} get rayjob tiny-0a1b2c-1 --output=json", "")]


def test_a_job_that_is_gone_is_told_from_a_cluster_that_is(tmp_path: Path) -> None:
    gone = refusal('Error from server (NotFound): rayjobs.ray.io "tiny" not found')
    assert Kubernetes(Commands(kubectl=gone)).state(submission("kubernetes", **PLACE), tmp_path).phase == "unknown"
    down = Commands(kubectl=refusal("The connection to the server was refused"))
    with pytest.raises(ClusterError, match="cannot ask Kubernetes: The connection to the server was refused"):
        Kubernetes(down).state(submission("kubernetes", **PLACE), tmp_path)


def test_a_cancellation_deletes_the_job(tmp_path: Path) -> None:
    commands = Commands(kubectl="")
    Kubernetes(commands).cancel(submission("kubernetes", **PLACE), tmp_path)
    assert commands.given[0][0].startswith(f"{START} delete rayjob tiny-0a1b2c-1")


def test_the_log_is_that_of_the_submitter(tmp_path: Path) -> None:
    asked = []

    def stream(command):
        asked.append(" ".join(command))
        yield from ["a", "b"]

    logs = Kubernetes(Commands(), stream).logs(submission("kubernetes", **PLACE), tmp_path, follow=True)
    assert list(logs) == ["a", "b"]
    assert asked == [f"{START} logs job/tiny-0a1b2c-1 --follow"]


def test_a_stream_that_fails_says_why() -> None:
    lines = stream_command(["sh", "-c", "echo one; echo warning >&2; echo no such job >&2; exit 1"])
    assert next(lines) == "one"
    with pytest.raises(ClusterError, match="cannot read the log: no such job"):
        next(lines)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("kubernetes.image=''",), "cluster.kubernetes.image is needed"),
        (("kubernetes.store=''",), "cluster.kubernetes.store is needed"),
        (("kubernetes.store=/elsewhere",), "lies on no volume of cluster.kubernetes.pod"),
        ((VOLUME.replace("/r}", "/r, readOnly: true}"),), "lies on no volume of cluster.kubernetes.pod"),
        (("kubernetes.pod={spec: {containers: 1}}",), "is no pod template"),
    ],
)
def test_a_job_whose_results_would_be_lost_is_refused(settings: tuple[str, ...], said: str, tmp_path: Path) -> None:
    Kubernetes().check(made(tmp_path))
    with pytest.raises(ConfigError, match=said):
        Kubernetes().check(made(tmp_path, *settings))


def test_variables_that_the_pods_lack_are_named(tmp_path: Path) -> None:
    found = made(tmp_path)
    named = replace(found, sweep_text=f"{found.sweep_text}\nstore: ${{GOAL_A}}/${{GOAL_B:-x}}/${{GOAL_C}}\n")
    with pytest.raises(ConfigError, match="the sweep names GOAL_A, GOAL_C; give the values for the cluster's nodes"):
        Kubernetes().check(named)
