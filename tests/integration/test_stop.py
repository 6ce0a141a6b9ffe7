"""A real launch that a batch system stops, with a tracking server that takes connections and never answers."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goal_sweep.goal_core.checkpoints.file import read_checkpoint
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.sweeps import pack
from tests.helpers.in_process import InProcess
from tests.helpers.launches import SWEEP, command, goal_sweep_here, results

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

IMAGES = 1500
"""Enough for an epoch of many seconds."""
SIGNAL_S, FINISHED_S = 60, 60
"""Seconds that a launch may take to end after a signal, and one that finds nothing to train, on a busy machine."""


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def sweep_of_one_long_epoch(folder: Path, tracking: str) -> Path:
    folder.mkdir()
    text = SWEEP.replace("EPOCHS, lr: 1e-3, batch_size: 16, warmup_epochs: 1", "1, lr: 1e-3, batch_size: 16")
    text = "\n".join(line for line in text.splitlines() if "finetune" not in line)
    (folder / "tiny.yaml").write_text(
        text.replace("num_train: 24", f"num_train: {IMAGES}") + f"\ntracking: {tracking}\n"
    )
    return folder


def train_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train the sweep in this process, without Ray and tracking."""
    monkeypatch.chdir(folder)
    sweep = open_sweep("tiny.yaml")
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    with sweep.store.heartbeat("tiny") as heartbeat:
        run_unit(sweep.job(unit, heartbeat.id, {}), lambda events: None)


def stop_in_the_epoch(folder: Path, attempt: int, number: signal.Signals) -> tuple[int, float]:
    """Launch, send a signal while this attempt trains, and return the exit status and how many seconds it took."""
    with (folder / "driver.log").open("ab") as log:
        driver = subprocess.Popen(command("launch", "tiny.yaml"), cwd=folder, stdout=log, stderr=log)
    started, deadline = f"attempt {attempt} | frozen", time.monotonic() + 300
    while sum(started in log.read_text() for log in folder.glob("goal-sweep-store/cells/*/*/log.txt")) < 2:
        assert driver.poll() is None, (folder / "driver.log").read_text()
        assert time.monotonic() < deadline, "no cell started within five minutes"
        time.sleep(0.02)
    time.sleep(1)
    sent = time.monotonic()
    os.kill(driver.pid, number)
    return driver.wait(timeout=120), time.monotonic() - sent


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGUSR1], id="once", marks=pytest.mark.exhaustive),
        pytest.param([signal.SIGTERM, signal.SIGUSR1], id="twice", marks=pytest.mark.exhaustive),
    ],
)
def test_a_launch_stopped_in_its_first_epoch_loses_no_step_whatever_tracking_does(
    silent_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: list[signal.Signals]
) -> None:
    unbroken = sweep_of_one_long_epoch(tmp_path / "unbroken", silent_server)
    train_here(unbroken, monkeypatch)
    folder = sweep_of_one_long_epoch(tmp_path / "run", silent_server)
    # With the frozen backbone's features the epoch begins at once.
    shutil.copytree(unbroken / "goal-sweep-store" / "features", folder / "goal-sweep-store" / "features")
    reached = 0
    for attempt, number in enumerate(numbers, start=1):
        status, took = stop_in_the_epoch(folder, attempt, number)
        said = (folder / "driver.log").read_text()
        assert (status, took < SIGNAL_S) == (75, True), said
        assert f"stopped by {number.name}: the same command continues" in said
        states = [
            read_checkpoint(path)[1] for path in folder.glob(f"goal-sweep-store/cells/*/*/last.{attempt}.safetensors")
        ]
        assert [state["epoch"] for state in states] == [0, 0]
        assert min(state["next_step"] for state in states) > reached
        reached = max(state["next_step"] for state in states)
    monkeypatch.setattr(launcher, "RayUnits", InProcess)
    finished = goal_sweep_here(folder, "launch", "tiny.yaml")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert results(folder) == results(unbroken)
    assert len(results(folder)) == 2
    began = time.monotonic()
    again = goal_sweep_here(folder, "launch", "tiny.yaml")
    assert (again.returncode, time.monotonic() - began < FINISHED_S) == (0, True), again.stdout + again.stderr
    (line,) = [line for line in again.stdout.splitlines() if line.startswith("tracking: ")]
    assert "not up to date" in line
    assert "goal-sweep sync tiny.yaml brings it up to date" in line
