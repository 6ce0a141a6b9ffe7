"""docker-compose.yml for real: every container of it, a sweep of 15 cells, and faults. `make cluster-test` runs it.

The containers are built from images made on this machine (`tests.helpers.compose`). Each fault gets a folder of its own
in the store's volume, and ends with the numbers of an unbroken launch in a single container without a cluster.
"""

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers.compose import (
    HERE,
    IMAGES,
    PORTS,
    PROJECT,
    READ_RESULTS,
    Launch,
    Stack,
    docker_daemon,
    make_images,
    run,
)
from tests.helpers.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]
SECRETS = ROOT / "docker" / "secrets"
SWEEP = "quickstart.yaml"
SMALL = ("--set", "seeds=[1]", "--set", "data.max_captions=1", "--set", "stages.frozen.epochs=6")
"""Half a minute on two free cores. The name of the sweep is that of the fault, so that MLflow shows each by itself."""
MIDDLE = r"epoch 2/6"
CELLS = 15
CUT_S = 90.0
"""Longer than a claim is kept."""


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compose")
    with docker_daemon(folder):
        make_images(folder)
        run(str(ROOT / "docker" / "make-secrets"))
        stack = Stack(folder, ROOT / "docker-compose.yml", HERE / "docker-compose.test.yml")
        try:
            stack.compose("up", "-d", "--no-build")
            for service, number in [("mlflow", 1), ("ray-head", 1), ("ray-worker", 1), ("ray-worker", 2)]:
                stack.wait_healthy(service, number)
            yield stack
        finally:
            (folder / "all.log").write_text(stack.compose("logs", "--no-color", check=False))
            stack.compose("down", "--volumes", "--timeout", "20", check=False)


@pytest.fixture(scope="module")
def unbroken(stack):
    """The numbers of one launch in one container, which starts a Ray of its own."""
    launch = f"goal-sweep launch {SWEEP} {' '.join(SMALL)} --store /tmp/store >&2"
    script = f"{launch} && python -c '{READ_RESULTS}' /tmp/store"
    numbers = json.loads(
        run("docker", "run", "--rm", "--init", "--shm-size", "2g", IMAGES["GOAL_IMAGE"], "sh", "-c", script)
    )
    assert len(numbers) == CELLS
    return numbers


def ask_mlflow(path: str, body: dict[str, Any] | None = None, password: str | None = None) -> dict[str, Any]:
    request = urllib.request.Request(f"http://127.0.0.1:{PORTS['MLFLOW_PORT']}/api/2.0/mlflow/{path}")
    if password is None:
        password = (SECRETS / "mlflow_password").read_text()
    request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, json.dumps(body).encode() if body else None, timeout=60) as answer:
        told: dict[str, Any] = json.load(answer)
    return told


def trainings_in_mlflow(name: str) -> dict[str, str]:
    """The status of each training's run, by its stage key."""
    experiment = ask_mlflow(f"experiments/get-by-name?experiment_name={name}")["experiment"]["experiment_id"]
    runs = ask_mlflow("runs/search", {"experiment_ids": [experiment], "max_results": 1000})["runs"]
    tags = [({tag["key"]: tag["value"] for tag in run["data"]["tags"]}, run["info"]["status"]) for run in runs]
    keys = [tag["goal.stage_key"] for tag, _ in tags if "goal.stage_key" in tag]
    assert len(keys) == len(set(keys)), "a training has two runs"
    return {tag["goal.stage_key"]: status for tag, status in tags if "goal.stage_key" in tag}


def start(stack: Stack, name: str, folder: str = "store") -> Launch:
    return stack.launch(SWEEP, f"{folder}/{name}", "--set", f"name={name}", *SMALL)


def check(stack: Stack, name: str, unbroken: dict[str, dict[str, float]], folder: str = "store") -> None:
    """Every training is done once, with the unbroken numbers, in the store and in MLflow.

    A launch waits a minute for MLflow and then leaves the rest to `sync`, so `sync` is what makes MLflow complete.
    """
    stack.compose("run", "--rm", "goal-sweep", "sync", SWEEP, "--store", f"/goal/{folder}/{name}",
                  "--set", f"name={name}", *SMALL)  # fmt: skip
    assert stack.results(f"{folder}/{name}") == unbroken
    keys = {training.rpartition("-")[2] for training in unbroken}
    assert trainings_in_mlflow(name) == dict.fromkeys(keys, "FINISHED")


def test_no_secret_shows_and_nothing_runs_as_root(stack):
    secrets = [path.read_text().strip() for path in SECRETS.iterdir() if path.suffix == ""]
    assert len(secrets) == 4
    for one in run("docker", "ps", "-q", "--filter", f"label=com.docker.compose.project={PROJECT}").split():
        logs = subprocess.run(["docker", "logs", one], capture_output=True, text=True, check=True)
        processes = run("docker", "top", one)
        shown = run("docker", "inspect", one) + processes + logs.stdout + logs.stderr
        shown += run("docker", "exec", one, "sh", "-c", "cat /tmp/ray/session_latest/logs/* 2>/dev/null || true")
        assert not [secret for secret in secrets if secret in shown]
        assert "root" not in {line.split()[0] for line in processes.splitlines()[1:]}
    modes = run("docker", "exec", stack.container("mlflow"), "sh", "-c", "stat -c %a /run/goal/*")
    assert set(modes.split()) == {"600"}


def test_mlflow_and_ray_ask_who_it_is(stack):
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask_mlflow("experiments/search?max_results=1", password="wrong")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{PORTS['RAY_PORT']}/api/jobs/", timeout=30)
    without = ["docker", "exec", "-e", "RAY_AUTH_TOKEN_PATH=/dev/null", stack.container("ray-worker")]
    asked = [*without, "ray", "health-check", "--address", "ray-head:6379"]
    assert subprocess.run(asked, capture_output=True, check=False).returncode != 0


def test_a_sweep_to_its_end(stack, unbroken):
    launch = start(stack, "calm")
    assert launch.end() == 0, launch.log.read_text()[-3000:]
    check(stack, "calm", unbroken)
    commit = run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip()
    script = "cat /goal/store/calm/cells/*/*/attempts/1.json | head -c 100000"
    assert commit in run("docker", "exec", stack.container("ray-head"), "sh", "-c", script)
    again = start(stack, "calm")
    assert again.end() == 0
    assert not again.says("to train in"), "a finished sweep was trained again"
    check(stack, "calm", unbroken)


def kill(service: str) -> Callable[[Stack], object]:
    return lambda stack: run("docker", "kill", stack.container(service))


def restart(service: str) -> Callable[[Stack], object]:
    return lambda stack: run("docker", "start", stack.container(service))


def cut_off(stack: Stack) -> None:
    network, worker = f"{PROJECT}_cluster", stack.container("ray-worker", 2)
    run("docker", "network", "disconnect", network, worker)
    time.sleep(CUT_S)
    run("docker", "network", "connect", network, worker)


def in_head(command: str) -> Callable[[Stack], object]:
    return lambda stack: run("docker", "exec", stack.container("ray-head"), "sh", "-c", command)


FAULTS: dict[str, tuple[Callable[[Stack], object], Callable[[Stack], object] | None, tuple[int, ...]]] = {
    "worker": (kill("ray-worker"), None, (0,)),
    "cut": (cut_off, None, (0,)),
    "postgres": (kill("postgres"), None, (0,)),
    "head": (kill("ray-head"), restart("ray-head"), (75,)),
    "full": (
        in_head("dd if=/dev/zero of=/goal/small/filler bs=64k 2>/dev/null || true"),
        in_head("rm /goal/small/filler"),
        (1, 75),
    ),
}
"""What is broken in the middle of a launch; how it is mended where the launch ends by it; and its statuses."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault(name, stack, unbroken):
    damage, mend, statuses = FAULTS[name]
    folder = "small" if name == "full" else "store"
    launch = start(stack, name, folder)
    launch.wait_for(MIDDLE)
    damage(stack)
    assert launch.end() in statuses, launch.log.read_text()[-3000:]
    assert "Traceback" not in launch.log.read_text()
    for service in ("postgres", "ray-head", "ray-worker"):  # which start again by themselves, except after a kill
        restart(service)(stack)
        stack.wait_healthy(service)
    if mend is not None:
        mend(stack)
        again = start(stack, name, folder)
        assert again.end() == 0, again.log.read_text()[-3000:]
    check(stack, name, unbroken, folder)
