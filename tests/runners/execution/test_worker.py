"""What a worker records of its unit: failures of one training or of all, a disk that refuses, a hang."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch
from goal_sweep.runners.execution.unit_listener import DEVICE_LOST, HUNG, UnitListener

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from goal_sweep.runners.execution import unit_listener, worker
from goal_sweep.runners.execution.worker import run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import TrainingFolder, charged_failures
from goal_sweep.sweeps import pack
from tests.helpers.dying_workers import PretendTrainer
from tests.helpers.forked import FORK, exit_status, forked
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

    def finishes_one(plan: object, files: dict[str, TrainingFolder], listener: UnitListener, *dataset: object) -> None:
        train(files[first.key], 2)
        listener.events([TrainingDone(key=first.key, result={})])
        raise RuntimeError("it broke")

    monkeypatch.setattr(worker, "train_unit", finishes_one)
    sent = run(sweep)
    assert [type(event) for event in sent] == [TrainingDone, TrainingFailed]
    assert sent[-1].key == second.key
    assert [status.state for status in sweep.statuses().values()][:2] == ["done", "waiting"]


def hangs(sweep: OpenedSweep, disk: str) -> None:
    """Finish one training, and do no step of the other. Its disk may refuse to say so."""
    first, second = sweep.by_stage[0]
    claimed = {one.key: sweep.store.folder(one) for one in (first, second)}
    for folder in claimed.values():
        folder.claim("L")
    train(claimed[first.key], 2)
    if disk == "refuses":

        def refuse(*arguments: object, **named: object) -> None:
            raise OSError(28, "No space left on device")

        claimed[second.key].lose = claimed[second.key].log = refuse  # type: ignore[method-assign]
    with UnitListener(claimed, lambda events: None, 1) as listener:
        listener.events([TrainingDone(key=first.key, result={})])
        time.sleep(60)


@pytest.mark.parametrize("disk", ["works", "refuses"])
def test_a_hang_ends_the_process_whatever_the_disk_does(sweep: OpenedSweep, disk: str) -> None:
    assert exit_status(forked(hangs, sweep, disk)) == HUNG
    finished, hung = folders(sweep)
    assert finished.result() is not None
    assert not finished.log_text()  # nothing in the folder of a finished training changes any more
    # Whether the cell is at fault shows when it is tried alone.
    assert (hung.attempts.all()[-1].outcome == "lost") is (disk == "works")
    assert charged_failures(hung.attempts.all()) == 0
    if disk == "works":
        assert "hung: no step for" in hung.log_text()


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


def waits(sweep: OpenedSweep, why: str, is_ready: Event) -> None:
    """Do some steps, or wait for a driver that takes long."""
    training = sweep.trainings[0]
    folder = sweep.store.folder(training)
    folder.claim("L")
    with UnitListener({training.key: folder}, lambda events: time.sleep(4), 2) as listener:
        is_ready.set()
        if why == "suspended":
            for _ in range(10):
                time.sleep(0.1)
                listener.step()
            time.sleep(0.5)
        else:
            listener.events([EpochDone(key=training.key, record={})])  # type: ignore[typeddict-item]


@pytest.mark.parametrize("why", ["suspended", "driver"])
def test_a_suspended_process_or_one_whose_driver_is_suspended_does_not_hang(sweep: OpenedSweep, why: str) -> None:
    is_ready = FORK.Event()
    process = forked(waits, sweep, why, is_ready)
    assert is_ready.wait(120)
    if why == "suspended":
        os.kill(process.pid or 0, signal.SIGSTOP)
        time.sleep(6)
        os.kill(process.pid or 0, signal.SIGCONT)
    assert exit_status(process) == 0
    (attempt,) = sweep.store.folder(sweep.trainings[0]).attempts.all()
    assert attempt.outcome == "running"


@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        pytest.param("hangs", HUNG, "hung: no step for", marks=pytest.mark.exhaustive),
        ("dies", 1, "its worker process died"),
        ("breaks", DEVICE_LOST, "AcceleratorError: CUDA error: device-side assert triggered"),
    ],
)
def test_a_cell_that_hangs_dies_or_breaks_the_gpu_in_a_shared_process_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, status: int, reason: str
) -> None:
    sweep = opened_in(tmp_path / "store", "resources.watchdog=1")
    at_fault = sweep.by_stage[0][1].key

    def dies(key: str, epoch: int) -> None:
        if (key, epoch) == (at_fault, 2):
            if how == "hangs":
                time.sleep(600)
            if how == "breaks":
                raise torch.AcceleratorError("CUDA error: device-side assert triggered")
            os._exit(1)

    monkeypatch.setattr(worker, "train_unit", PretendTrainer(dies))
    monkeypatch.setattr(worker, "open_inputs", lambda unit, code, indexes: None)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    ends: list[int] = []
    with sweep.store.heartbeat("s") as launch:
        while not ends or (ends[-1] and len(ends) < 10):
            ends.append(exit_status(forked(worker.run_unit, sweep.job(unit, launch.id, {}), lambda events: None)))
    # After progress, without progress, and three times alone.
    assert ends == [status] * 5 + [0]
    healthy, poisoned = folders(sweep)
    assert healthy.result() is not None
    assert charged_failures(healthy.attempts.all()) == 0
    assert charged_failures(poisoned.attempts.all()) == 3
    assert sweep.statuses()[sweep.by_stage[0][1]].reason.startswith(reason)


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

    def stops(plan: object, files: object, listener: UnitListener, *dataset: object) -> None:
        asked.append(listener.stopping())
        sweep.store.drivers.ask_to_stop(launch.id)
        asked.extend(listener.stopping() for _ in range(2))

    monkeypatch.setattr(worker, "train_unit", stops)
    monkeypatch.setattr(unit_listener, "STOP_CHECK_S", 0.0)
    (unit,) = pack(sweep.by_stage[0], sweep.config.execution)
    with sweep.store.heartbeat("s") as launch:
        run_unit(sweep.job(unit, launch.id, {}), lambda events: None)
    assert asked == [False, True, True]
    assert [folder.attempts.all()[-1].outcome for folder in folders(sweep)] == ["running", "running"]
