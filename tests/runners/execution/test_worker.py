"""What a worker records of its unit: failures of one training or of all, a disk that refuses, a hang."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from goal_core.atomic import StorageError
from goal_core.training import TrainingDone, TrainingEvent, TrainingFailed
from runners.execution import worker
from runners.execution.worker import HUNG, UnitListener, run_unit
from runners.launch.opened_sweep import OpenedSweep
from runners.store import TrainingFolder, charged_failures
from sweeps import pack
from tests.helpers.paths import ROOT
from tests.helpers.store_cases import train
from tests.helpers.sweep_cases import opened_in


@pytest.fixture
def sweep(tmp_path: Path) -> OpenedSweep:
    return opened_in(tmp_path / "store")


def run(sweep: OpenedSweep) -> list[TrainingEvent]:
    """Run the first unit of a sweep in this process; the events it sent."""
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    sent: list[TrainingEvent] = []
    with sweep.store.heartbeat("s") as launch:
        run_unit(sweep.job(unit, launch.id, {}), sent.extend)
    return sent


def folders(sweep: OpenedSweep) -> list[TrainingFolder]:
    return [sweep.store.folder(training) for training in sweep.by_stage[0]]


@pytest.mark.parametrize(
    ("error", "kind", "charged"),
    [
        (StorageError("no space left"), "storage", 0),
        (MemoryError("too much"), "memory", 1),
        (RuntimeError("it broke"), "error", 1),
        (RuntimeError(), "error", 1),
    ],
)
def test_an_error_of_the_unit_fails_each_training_by_its_kind(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, charged: int
) -> None:
    def breaks(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(worker, "train_unit", breaks)
    sent = run(sweep)
    assert [(event.key, event.kind) for event in sent if isinstance(event, TrainingFailed)] == [
        (training.key, kind) for training in sweep.by_stage[0]
    ]
    for folder in folders(sweep):
        (attempt,) = folder.attempts.all()
        assert attempt.outcome == "failed"
        assert attempt.reason
        assert charged_failures([attempt]) == charged


def test_an_error_after_one_training_is_done_fails_only_the_others(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sweep.by_stage[0]

    def finishes_one(plan: object, files: dict[str, TrainingFolder], listener: UnitListener) -> None:
        train(files[first.key], 2)
        listener.events([TrainingDone(key=first.key, result={})])
        raise RuntimeError("it broke")

    monkeypatch.setattr(worker, "train_unit", finishes_one)
    sent = run(sweep)
    assert [type(event) for event in sent] == [TrainingDone, TrainingFailed]
    assert sent[-1].key == second.key
    assert [status.state for status in sweep.statuses().values()][:2] == ["done", "waiting"]


HANGS = """
import sys, time
from pathlib import Path
from tests.helpers.sweep_cases import opened_in
from tests.helpers.store_cases import train
from runners.execution.worker import UnitListener
from goal_core.training import TrainingDone

sweep = opened_in(Path(sys.argv[1]))
first, second = sweep.by_stage[0]
folders = {one.key: sweep.store.folder(one) for one in (first, second)}
for folder in folders.values():
    folder.claim("L")
train(folders[first.key], 2)
if sys.argv[2] == "refuses":
    def refuse(*arguments, **named):
        raise OSError(28, "No space left on device")
    folders[second.key].fail = folders[second.key].log = refuse
with UnitListener(folders, lambda events: None, 1) as listener:
    listener.events([TrainingDone(key=first.key, result={})])
    time.sleep(60)
"""


@pytest.mark.parametrize("disk", ["works", "refuses"])
def test_a_hang_ends_the_process_whatever_the_disk_does(sweep: OpenedSweep, disk: str) -> None:
    store = str(sweep.store.root)
    done = subprocess.run(
        [sys.executable, "-c", HANGS, store, disk], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=False
    )
    assert done.returncode == HUNG
    finished, hung = folders(sweep)
    assert finished.result() is not None
    assert not finished.log_path.exists()  # nothing in the folder of a finished training changes any more
    assert (hung.attempts.all()[-1].outcome == "failed") is (disk == "works")
    if disk == "works":
        assert "hung: no step for" in hung.log_path.read_text()


def test_events_pass_on_after_the_store_has_them(sweep: OpenedSweep) -> None:
    training = sweep.trainings[0]
    folder = sweep.store.folder(training)
    folder.claim("L")
    outcomes: list[str] = []

    def send(events: Sequence[TrainingEvent]) -> None:
        outcomes.append(folder.attempts.all()[-1].outcome)

    failed = TrainingFailed(key=training.key, kind="error", reason="it broke", trace="")
    UnitListener({training.key: folder}, send, 0).events([failed])
    assert outcomes == ["failed"]


def test_a_unit_that_starts_when_its_launch_is_stopping_claims_nothing(sweep: OpenedSweep) -> None:
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    with sweep.store.heartbeat("s") as launch:
        sweep.store.drivers.ask_to_stop(launch.id)
        run_unit(sweep.job(unit, launch.id, {}), lambda events: None)
    assert [folder.attempts.all() for folder in folders(sweep)] == [[], []]


def test_a_unit_that_was_stopped_ends_no_attempt_because_the_driver_does(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def stops(plan: object, files: object, listener: UnitListener) -> None:
        asked.append(listener.stopping())
        sweep.store.drivers.ask_to_stop(launch.id)
        asked.extend(listener.stopping() for _ in range(2))

    monkeypatch.setattr(worker, "train_unit", stops)
    monkeypatch.setattr(worker, "STOP_CHECK_S", 0.0)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    with sweep.store.heartbeat("s") as launch:
        run_unit(sweep.job(unit, launch.id, {}), lambda events: None)
    assert asked == [False, True, True]
    assert [folder.attempts.all()[-1].outcome for folder in folders(sweep)] == ["running", "running"]
