"""What a worker does with a unit: what it claims, what it records, how it ends, and when its machine is unfit."""

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import DataError, MissingDataError
from goal_sweep.goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from goal_sweep.runners.execution import job as inputs
from goal_sweep.runners.execution import worker
from goal_sweep.runners.execution.job import UnfitMachineError
from goal_sweep.runners.execution.worker import ENDED_ITSELF, UnitCallback, run_unit
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.store import Store, TrainingFolder, counted_failures
from tests.helpers.forked import FORK, exit_status, forked
from tests.helpers.store_cases import claimed, record, train
from tests.helpers.sweep_cases import job_of, opened_in

HOST = socket.gethostname()
Files = Mapping[str, TrainingFolder]
Train = Callable[[Files, UnitCallback], None]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedSweep:
    """Two cells that train together, whose data nobody compares."""
    monkeypatch.setattr(worker, "open_inputs", lambda unit, code, indexes: None)
    return opened_in(tmp_path / "store")


def run(sweep: OpenedSweep, patch: pytest.MonkeyPatch, train: Train) -> tuple[list[TrainingEvent], list[Any]]:
    """Run the first unit, with something in the place of the trainer. Returns its events and what it claimed."""
    sent: list[TrainingEvent] = []
    claimed: list[Any] = []

    def send(events: Sequence[TrainingEvent] = (), **more: Any) -> None:
        sent.extend(events)
        claimed.extend(more.get("claimed", ()))

    with patch.context() as here:
        here.setattr(worker, "train_unit", lambda plan, files, callback, dataset: train(files, callback))
        run_unit(job_of(sweep), send)
    return sent, claimed


def folders(sweep: OpenedSweep) -> list[TrainingFolder]:
    return [sweep.store.folder(training) for training in sweep.by_stage[0]]


def outcomes(sweep: OpenedSweep) -> list[list[str]]:
    return [[one.outcome for one in folder.attempts.all()] for folder in folders(sweep)]


@pytest.mark.parametrize(
    ("error", "kind", "counted"),
    [
        (StorageError("no space left"), "storage", 0),
        (RuntimeError("it broke"), "error", 1),
        (RuntimeError(), "error", 1),
    ],
)
def test_an_error_of_the_unit_fails_each_training_by_its_kind(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: str, counted: int
) -> None:
    sent, _ = run(sweep, monkeypatch, Mock(side_effect=error))
    failed = {(event.key, event.kind) for event in sent if isinstance(event, TrainingFailed)}
    assert failed == {(training.key, kind) for training in sweep.by_stage[0]}
    for folder in folders(sweep):
        (attempt,) = folder.attempts.all()
        assert (attempt.outcome, bool(attempt.reason)) == ("failed", True)
        assert counted_failures([attempt]) == counted


def test_an_error_after_one_training_is_done_fails_only_the_others(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch):
    first, second = sweep.by_stage[0]

    def finishes_one(files: Files, callback: UnitCallback) -> None:
        train(files[first.key], 2)
        callback.events([TrainingDone(key=first.key, result={})])
        raise RuntimeError("it broke")

    sent, _ = run(sweep, monkeypatch, finishes_one)
    assert [(type(event), event.key) for event in sent] == [(TrainingDone, first.key), (TrainingFailed, second.key)]
    assert outcomes(sweep) == [["done"], ["failed"]]


def test_only_what_is_neither_done_nor_trained_by_another_is_claimed(sweep: OpenedSweep, monkeypatch):
    first, second = sweep.by_stage[0]
    theirs = claimed(sweep.store.folder(first), "another launch")
    began: list[list[str]] = []

    def notes(files: Files, callback: UnitCallback) -> None:
        began.append(list(files))
        for key, folder in files.items():
            train(folder, 2)
            callback.events([TrainingDone(key=key, result={})])

    assert run(sweep, monkeypatch, notes)[1] == [second.key]
    theirs.end("interrupted")
    assert run(sweep, monkeypatch, notes)[1] == [first.key]
    assert began == [[second.key], [first.key]]
    assert run(sweep, monkeypatch, notes) == ([], [])


def test_events_pass_on_after_the_store_has_them(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, seen = folders(sweep)[0], list[str]()
    folder.claim("L")
    failed = TrainingFailed(key=sweep.trainings[0].key, kind="error", reason="it broke", trace="")

    def send(events: Sequence[TrainingEvent] = (), **more: Any) -> None:
        seen.extend(one.outcome for one in folder.attempts.all())

    UnitCallback({failed.key: folder}, send, 0).events([failed])
    assert seen == ["failed"]


def test_a_unit_whose_launch_asks_it_to_stop_ends_its_attempts(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch):
    asked: list[bool] = []

    def stops(files: Files, callback: UnitCallback) -> None:
        asked.append(callback.stopping())
        sweep.store.ask_to_stop("L")
        asked.extend(callback.stopping() for _ in range(2))

    monkeypatch.setattr(worker, "STOP_CHECK_S", 0.0)
    run(sweep, monkeypatch, stops)
    assert asked == [False, True, True]
    assert outcomes(sweep) == [["interrupted"], ["interrupted"]]


def hangs(sweep: OpenedSweep, disk: str) -> None:
    """Finish one training, and do no step of the other. Its disk may refuse to say so."""
    claimed = {training.key: folder for training, folder in zip(sweep.by_stage[0], folders(sweep), strict=True)}
    first, second = claimed
    for folder in claimed.values():
        folder.claim("L")
    train(claimed[first], 2)
    if disk == "refuses":
        refuse = Mock(side_effect=OSError(28, "No space left on device"))
        claimed[second].end = claimed[second].log = refuse  # type: ignore[method-assign]
    with UnitCallback(claimed, lambda events=(), **more: None, 1) as callback:
        callback.events([TrainingDone(key=first, result={})])
        time.sleep(60)


@pytest.mark.parametrize("disk", ["works", "refuses"])
def test_a_hang_ends_the_process_whatever_the_disk_does(sweep: OpenedSweep, disk: str) -> None:
    assert exit_status(forked(hangs, sweep, disk)) == ENDED_ITSELF
    finished, hung = folders(sweep)
    assert finished.result() is not None
    assert not finished.log_text()  # nothing in the folder of a finished training changes any more
    # Whether the cell is at fault the driver finds out.
    (attempt,) = hung.attempts.all()
    assert (attempt.outcome, attempt.counted) == ("lost" if disk == "works" else "running", False)
    assert ("hung: no step for" in hung.log_text()) == (disk == "works")


def test_an_error_that_breaks_the_gpu_ends_the_process(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail every cell, and which one caused it shows when they are tried apart."""
    breaks = Mock(side_effect=torch.AcceleratorError("CUDA error: device-side assert triggered"))
    assert exit_status(forked(run, sweep, monkeypatch, breaks)) == ENDED_ITSELF
    assert outcomes(sweep) == [["lost"], ["lost"]]
    assert all("device-side assert" in folder.attempts.all()[0].reason for folder in folders(sweep))


def waits(sweep: OpenedSweep, why: str, is_ready: Event) -> None:
    """Do some steps, or wait for something that takes longer than the watchdog would."""
    training, folder = sweep.trainings[0], folders(sweep)[0]
    folder.claim("L")
    with UnitCallback({training.key: folder}, lambda events=(), **more: time.sleep(4), 2) as callback:
        is_ready.set()
        if why == "suspended":
            for _ in range(10):
                time.sleep(0.1)
                callback.step()
            time.sleep(0.5)
        else:
            callback.events([EpochDone(key=training.key, record=record(1))])


@pytest.mark.exhaustive
@pytest.mark.parametrize("why", ["suspended", "driver"])
def test_who_is_suspended_or_waits_for_the_driver_does_not_hang(sweep: OpenedSweep, why: str) -> None:
    is_ready = FORK.Event()
    process = forked(waits, sweep, why, is_ready)
    assert is_ready.wait(120)
    if why == "suspended":
        os.kill(process.pid or 0, signal.SIGSTOP)
        time.sleep(6)
        os.kill(process.pid or 0, signal.SIGCONT)
    assert exit_status(process) == 0
    assert outcomes(sweep)[0] == ["running"]


# On a machine of a cluster that lacks something.


def refused(sweep: OpenedSweep, patch: pytest.MonkeyPatch, **changes: Any) -> str:
    """Run a unit that another machine might train as well; what is said against this one."""
    patch.setattr(inputs, "_VISIBLE_S", 0.0)
    sweep.store.begin_launch("L")
    with pytest.raises(UnfitMachineError) as raised:
        run_unit(job_of(sweep, **{"elsewhere": True, **changes}), lambda events=(), **more: None)
    assert outcomes(sweep) == [[], []]
    return str(raised.value)


def test_data_that_are_missing_here_are_named_with_the_machine(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "open_inputs", Mock(side_effect=MissingDataError("no such folder: /data/coco")))
    assert refused(sweep, monkeypatch) == f"{HOST}: no such folder: /data/coco"


def test_a_store_that_is_not_the_drivers_is_not_written(sweep: OpenedSweep, monkeypatch, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    said = refused(sweep, monkeypatch, store=str(elsewhere))
    assert said.startswith(f"{HOST} does not see the store of the launch at {elsewhere}")
    assert not elsewhere.exists()


def test_a_store_that_cannot_be_written_here_is_named(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "write_probe", Mock(side_effect=OSError(30, "Read-only file system")))
    assert f"{HOST} cannot write the store {sweep.store.root}: " in refused(sweep, monkeypatch)


def test_other_versions_are_named(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    here = inputs.software()
    said = refused(sweep, monkeypatch, software={**here, "torch": "1.0", "python": "2.7"})
    assert f"torch {here['torch']}, not 1.0" in said
    assert f"python {here['python']}, not 2.7" in said
    assert "+" not in here["torch"]


def test_a_machine_without_a_gpu_says_so(sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = refused(sweep, monkeypatch, resources=replace(sweep.config.resources, gpus=1))
    assert said.startswith(f"{HOST} has no GPU that torch ")


def test_where_no_other_machine_can_train_the_unit_its_trainings_fail_uncounted(sweep: OpenedSweep, monkeypatch):
    monkeypatch.setattr(worker, "open_inputs", Mock(side_effect=DataError("the data differ", key="")))
    sent, _ = run(sweep, monkeypatch, lambda files, callback: None)
    kinds = [(event.kind, event.reason) for event in sent if isinstance(event, TrainingFailed)]
    assert kinds == [("inputs", "the data differ")] * 2
    assert [counted_failures(folder.attempts.all()) for folder in folders(sweep)] == [0, 0]
