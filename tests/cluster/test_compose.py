"""docker-compose.yml for real: every container of it, a sweep of 15 cells, and faults. `make cluster-test` runs it.

The containers are built from images made on this machine (`tests.helpers.compose`). Each fault gets a folder of its own
in the store's volume, and ends with the numbers of an unbroken launch in a single container without a cluster.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
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
LEASE_S = 60.0


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compose")
    with docker_daemon(folder):
        make_images(folder)
        run(str(ROOT / "docker" / "make-secrets"))
        stack = Stack(folder, ROOT / "docker-compose.yml", HERE / "docker-compose.test.yml")
        try:
            stack.start()
            for service, number in [("mlflow", 1), ("ray-head", 1), ("ray-worker", 1), ("ray-worker", 2)]:
                stack.wait_healthy(service, number)
            yield stack
        finally:
            for service in ("mlflow", "ray-head", "ray-worker"):
                (folder / f"{service}.log").write_text(stack.compose("logs", "--no-color", service, check=False))
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


def say(what: str, number: float) -> None:
    """A figure for the report of the run (`pytest -rA` prints it)."""
    print(f"{what.replace('_', ' ')}: {number:.0f}")


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


def test_only_the_loopback_interface_is_published(stack):
    for one in run("docker", "ps", "-q", "--filter", f"label=com.docker.compose.project={PROJECT}").split():
        ports = json.loads(run("docker", "inspect", "-f", "{{json .NetworkSettings.Ports}}", one))
        assert {binding["HostIp"] for bindings in ports.values() for binding in bindings or []} <= {"127.0.0.1"}


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


def test_a_killed_worker(stack, unbroken):
    launch = start(stack, "killed")
    launch.wait_for(MIDDLE)
    since, worker = time.monotonic(), stack.container("ray-worker", 1)
    run("docker", "kill", worker)
    assert launch.end() == 0, launch.log.read_text()[-3000:]
    say("seconds_to_the_end", time.monotonic() - since)
    run("docker", "start", worker)
    check(stack, "killed", unbroken)
    stack.wait_healthy("ray-worker", 1)


def test_a_worker_cut_off_for_longer_than_its_lease(stack, unbroken):
    launch = start(stack, "cut")
    launch.wait_for(MIDDLE)
    since, worker = time.monotonic(), stack.container("ray-worker", 2)
    run("docker", "network", "disconnect", stack.network("cluster"), worker)
    time.sleep(LEASE_S * 1.5)
    run("docker", "network", "connect", stack.network("cluster"), worker)
    assert launch.end() == 0, launch.log.read_text()[-3000:]
    say("seconds_to_the_end", time.monotonic() - since)
    check(stack, "cut", unbroken)
    say("seconds_until_it_was_back", stack.wait_healthy("ray-worker", 2))
    assert stack.results("store/cut") == unbroken  # also after what the worker that came back may have written


def test_a_full_disk(stack, unbroken):
    launch = start(stack, "full", "small")
    launch.wait_for(MIDDLE)
    head = stack.container("ray-head")
    run("docker", "exec", head, "sh", "-c", "dd if=/dev/zero of=/goal/small/filler bs=64k 2>/dev/null || true")
    status = launch.end()
    say("status_on_the_full_disk", status)
    assert status in (1, 75), launch.log.read_text()[-3000:]
    assert "Traceback" not in launch.log.read_text()
    run("docker", "exec", head, "rm", "/goal/small/filler")
    again = start(stack, "full", "small")
    assert again.end() == 0, again.log.read_text()[-3000:]
    check(stack, "full", unbroken, "small")


def test_postgres_restarted(stack, unbroken):
    launch = start(stack, "postgres")
    launch.wait_for(MIDDLE)
    run("docker", "kill", stack.container("postgres"))
    time.sleep(10)
    run("docker", "start", stack.container("postgres"))
    say("seconds_until_healthy", stack.wait_healthy("postgres"))
    assert launch.end() == 0, launch.log.read_text()[-3000:]
    check(stack, "postgres", unbroken)


def test_a_killed_head(stack, unbroken):
    launch = start(stack, "head")
    launch.wait_for(MIDDLE)
    since = time.monotonic()
    run("docker", "kill", stack.container("ray-head"))
    assert launch.end() == 75, launch.log.read_text()[-3000:]
    say("seconds_to_status_75", time.monotonic() - since)
    assert "Traceback" not in launch.log.read_text()
    run("docker", "start", stack.container("ray-head"))
    stack.wait_healthy("ray-head")
    since = time.monotonic()
    for number in (1, 2):
        stack.wait_healthy("ray-worker", number)
    say("seconds_until_the_workers_were_back", time.monotonic() - since)
    again = start(stack, "head")
    assert again.end() == 0, again.log.read_text()[-3000:]
    check(stack, "head", unbroken)
