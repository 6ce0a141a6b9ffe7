"""Launches on a store in a bucket: a driver killed, another machine that goes on, a server that is away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.launches import command, goal_sweep, records_of, results, stop, sweep_in, tampered_trainer
from tests.helpers.paths import ROOT

pytest.importorskip("moto", reason="moto[server] is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")
pytestmark = [pytest.mark.exhaustive, pytest.mark.integration, pytest.mark.timeout(1800)]
EPOCHS = 30


class Server:
    """A server in a process of its own."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([sys.executable, "-m", "tests.helpers.s3_server", str(port)], cwd=ROOT)

    def control(self, what: str) -> str:
        with urllib.request.urlopen(f"{self.url}/-/{what}", timeout=20) as answer:
            return str(answer.read().decode())


@pytest.fixture
def server() -> Iterator[Server]:
    from tests.helpers.s3_server import free_port

    server = Server(free_port())
    deadline = time.monotonic() + 60
    while True:
        try:
            server.control("bucket?name=bucket")
            break
        except OSError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.2)
    yield server
    server.process.kill()
    server.process.wait()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    """The same sweep on a folder, without a fault."""
    folder = sweep_in(tmp_path_factory.mktemp("unbroken") / "sweep", EPOCHS)
    done = goal_sweep(folder, "launch", "tiny.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def environment(server: Server, machine: Path) -> dict[str, str]:
    """What a machine with a home of its own knows."""
    from tests.helpers.s3_server import CREDENTIALS

    machine.mkdir(exist_ok=True)
    own = {"GOAL_SWEEP_CACHE": str(machine / "cache"), "GOAL_SWEEP_SCRATCH": str(machine)}
    return {**os.environ, **CREDENTIALS, **own, "AWS_ENDPOINT_URL": server.url}


def copied(folder: Path, around: dict[str, str]) -> Path:
    """The store's files, as those of a store in a folder."""
    code = """
import sys
from pathlib import Path
from goal_sweep.runners.store import Store
store = Store("s3://bucket/x")
for path in store.storage.files(store._base, below=True):
    target = Path(sys.argv[1]) / path.relative_to(store._base)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(store.storage.read(path))
"""
    there = folder / "goal-sweep-store"
    subprocess.run([sys.executable, "-c", code, str(there)], cwd=ROOT, env=around, check=True, timeout=200)
    return folder


def check_equal(folder: Path, unbroken: Path) -> None:
    assert results(folder) == results(unbroken)
    assert len(results(folder)) == 4
    assert records_of(folder) == records_of(unbroken)


def started(folder: Path, around: dict[str, str], server: Server, sign: str) -> subprocess.Popen[bytes]:
    """A launch, once an object whose key contains a text has been written."""
    with (folder / "driver.log").open("wb") as log:
        launch = command("launch", "tiny.yaml", "--store", "s3://bucket/x")
        driver = subprocess.Popen(launch, cwd=folder, env=around, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + 300
    while not any(sign in path for method, path in json.loads(server.control("requests")) if method == "PUT"):
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, f"no {sign} within five minutes"
        time.sleep(0.2)
    return driver


def test_another_machine_continues_after_a_kill_with_equal_numbers(server, tmp_path, unbroken):
    folder, here, there = sweep_in(tmp_path / "sweep", EPOCHS), tmp_path / "here", tmp_path / "there"
    driver = started(folder, environment(server, here), server, "/last.1.")
    stop(driver)
    done = goal_sweep(folder, "launch", "tiny.yaml", "--store", "s3://bucket/x", environment=environment(server, there))
    assert done.returncode == 0, done.stdout + done.stderr
    check_equal(copied(folder, environment(server, there)), unbroken)
    again = goal_sweep(
        folder, "launch", "tiny.yaml", "--store", "s3://bucket/x", environment=environment(server, there)
    )
    assert "nothing to train" in again.stdout, again.stdout + again.stderr


def test_a_busy_forgetful_server_that_is_away_for_a_while_changes_no_number(server, tmp_path, unbroken):
    folder, around = sweep_in(tmp_path / "sweep", EPOCHS), environment(server, tmp_path / "here")
    server.control("faults?busy=0.05&lost=0.05")
    driver = started(folder, around, server, "/last.1.")
    server.control("faults?busy=0.05&lost=0.05&away=30")
    assert driver.wait(timeout=900) == 0, (folder / "driver.log").read_text()
    server.control("faults")
    check_equal(copied(folder, around), unbroken)


def test_a_second_launch_is_refused_by_name_and_a_stop_saves(server, tmp_path, unbroken):
    folder, around = sweep_in(tmp_path / "sweep", EPOCHS), environment(server, tmp_path / "here")
    slow = tampered_trainer(tmp_path / "slow", "time.sleep(0.2)")
    driver = started(folder, {**around, "PYTHONPATH": slow["PYTHONPATH"]}, server, "/attempts/1.json")
    second = goal_sweep(folder, "launch", "tiny.yaml", "--store", "s3://bucket/x", environment=around)
    assert second.returncode == 2
    assert f"pid {driver.pid}, sweep tiny" in second.stderr
    driver.terminate()
    assert driver.wait(timeout=300) == 75, (folder / "driver.log").read_text()
    done = goal_sweep(folder, "launch", "tiny.yaml", "--store", "s3://bucket/x", environment=around)
    assert done.returncode == 0, done.stdout + done.stderr
    check_equal(copied(folder, around), unbroken)
