"""Launches that are killed, stopped, or whose cell fails: the same command ends with the same numbers."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.helpers.launches import tampered_trainer
from tests.helpers.product import (
    attempts,
    check_mlflow,
    histories,
    num_epochs,
    results,
    run,
    start,
    status,
    tiny_in,
    wait_until,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]


def slowed(folder: Path, seconds: float = 0.05) -> dict[str, str]:
    return tampered_trainer(folder, f"time.sleep({seconds})")


def started_training(folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """A launch that has saved another epoch."""
    before = num_epochs(folder)
    launch = start(folder, "launch", "tiny.yaml", environment=environment)
    wait_until(lambda: num_epochs(folder) > before, launch, folder)
    return launch


@pytest.mark.exhaustive
def test_a_killed_launch_continues_with_the_same_numbers(unbroken: Path, tmp_path: Path) -> None:
    folder = tiny_in(tmp_path / "run")
    launch = started_training(folder, slowed(tmp_path / "slow"))
    for process in (psutil.Process(launch.pid), *psutil.Process(launch.pid).children(recursive=True)):
        process.kill()
    launch.wait(60)
    assert len(results(folder)) < 4
    run(folder, "launch", "tiny.yaml", status=0)
    assert (results(folder), histories(folder)) == (results(unbroken), histories(unbroken))
    check_mlflow(folder)
    assert not any(attempt["counted"] for each in attempts(folder).values() for attempt in each)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("number", "says"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_saves_and_the_same_command_continues(unbroken: Path, tmp_path, number: signal.Signals, says: int):
    folder = tiny_in(tmp_path / "run")
    launch = started_training(folder, slowed(tmp_path / "slow"))
    os.kill(launch.pid, number)
    assert launch.wait(120) == says
    assert {row["state"] for row in status(folder)} <= {"waiting", "done"}
    run(folder, "launch", "tiny.yaml", status=0)
    assert (results(folder), histories(folder)) == (results(unbroken), histories(unbroken))
    check_mlflow(folder)


@pytest.mark.exhaustive
def test_a_cell_fails_alone(unbroken: Path, tmp_path: Path) -> None:
    folder = tiny_in(tmp_path / "run")
    fault = 'if objective == "con/con": raise RuntimeError("a fault of this cell")'
    run(folder, "launch", "tiny.yaml", environment=tampered_trainer(tmp_path / "fault", fault), status=1)
    rows = {row["name"]: row for row in status(folder)}
    assert sorted(row["state"] for row in rows.values()) == ["done", "done", "failed", "failed"]
    assert "a fault of this cell" in rows["con/con test_resnet seed 1 (frozen)"]["reason"]
    assert results(folder).items() <= results(unbroken).items()
    assert "a fault of this cell" in run(folder, "logs", "tiny.yaml", "--failed").stdout
    report = (folder / "goal-sweep-store" / "reports" / "tiny" / "report.md").read_text()
    assert "--" in report
    run(folder, "launch", "tiny.yaml", status=1)
    assert len(results(folder)) == 2
    run(folder, "launch", "tiny.yaml", "--retry-failed", status=0)
    assert (results(folder), histories(folder)) == (results(unbroken), histories(unbroken))
    check_mlflow(folder)
