"""Launches on a store in a bucket: a driver killed, another machine that goes on, a server that is away."""

import contextlib
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.launches import Launch, check_equal, goal_sweep, sweep_in, tampered_trainer
from tests.helpers.paths import ROOT
from tests.helpers.until import free_port, until

pytest.importorskip("moto", reason="moto[server] is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")
pytestmark = [pytest.mark.exhaustive, pytest.mark.integration, pytest.mark.timeout(1800)]
STORE = ("--store", "s3://bucket/x")


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
    server = Server(free_port())

    def answers() -> bool:
        with contextlib.suppress(OSError):
            server.control("bucket?name=bucket")
            return True
        return False

    until(answers, "answer")
    yield server
    server.process.kill()
    server.process.wait()


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


def started(folder: Path, around: dict[str, str], server: Server, sign: str) -> Launch:
    """A launch, once an object whose key contains a text has been written."""
    launch = Launch(folder, *STORE, environment=around)

    def is_written() -> bool:
        assert launch.process.poll() is None, launch.said
        return any(sign in path for method, path in json.loads(server.control("requests")) if method == "PUT")

    until(is_written, sign, 300)
    return launch


def test_another_machine_continues_after_a_kill_with_equal_numbers(server: Server, tmp_path: Path, unbroken: Path):
    folder, here, there = sweep_in(tmp_path / "sweep"), tmp_path / "here", tmp_path / "there"
    started(folder, environment(server, here), server, "/last").end()
    goal_sweep(folder, "launch", "tiny.yaml", *STORE, environment=environment(server, there), status=0)
    check_equal(copied(folder, environment(server, there)), unbroken, in_mlflow=False)
    again = goal_sweep(folder, "launch", "tiny.yaml", *STORE, environment=environment(server, there))
    assert "nothing to train" in again.stdout, again.stdout + again.stderr


def test_a_busy_forgetful_server_that_is_away_for_a_while_changes_no_number(server: Server, tmp_path, unbroken: Path):
    folder, around = sweep_in(tmp_path / "sweep"), environment(server, tmp_path / "here")
    server.control("faults?busy=0.05&lost=0.05")
    launch = started(folder, around, server, "/last")
    server.control("faults?busy=0.05&lost=0.05&away=30")
    launch.ends(within=900)
    server.control("faults")
    check_equal(copied(folder, around), unbroken, in_mlflow=False)


def test_two_launches_share_the_work_and_a_stop_saves(server: Server, tmp_path: Path, unbroken: Path) -> None:
    folder, around = sweep_in(tmp_path / "sweep"), environment(server, tmp_path / "here")
    slow = tampered_trainer(tmp_path / "slow", "time.sleep(0.2)")
    first = started(folder, {**around, "PYTHONPATH": slow["PYTHONPATH"]}, server, "/attempts/1.json")
    second = Launch(folder, *STORE, environment=around)
    second.says("trainings are being done by")
    first.process.terminate()
    first.ends(75, within=300)
    second.ends(within=900)
    check_equal(copied(folder, around), unbroken, in_mlflow=False)
