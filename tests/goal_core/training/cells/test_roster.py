"""The share of an epoch in which its steps wait for data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from goal_sweep.goal_core.data.batches import Batch, BatchSource
from goal_sweep.goal_core.training import Callback
from goal_sweep.goal_core.training.cells import roster as roster_module
from goal_sweep.goal_core.training.cells.roster import EpochBatches, Roster
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import folders_of, unit_of


class Clock:
    """Time that passes when somebody says so."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(roster_module, "time", clock)
    return clock


def slow_source(clock: Clock, steps: int, seconds: float) -> Any:
    def batches(epoch: int, start_step: int = 0) -> Iterator[int]:
        for number in range(start_step, steps):
            clock.now += seconds
            yield number

    return SimpleNamespace(steps_per_epoch=steps, batches=batches)


def test_only_the_time_until_a_batch_is_there_counts(clock: Clock) -> None:
    roster, cell = Roster({}, Callback()), SimpleNamespace(key="a", epoch=0, next_step=1)
    roster.cells = {"a": cell}  # type: ignore[dict-item]
    batches = EpochBatches(slow_source(clock, 5, 3.0), roster, 0)
    numbered: Any = batches  # the source gives the number of each step in place of its batch
    assert batches.share_waited == 0
    steps = []
    for step, batch in numbered:
        assert step == batch
        steps.append(step)
        clock.now += 1.0
        cell.next_step += 1
    assert steps == [1, 2, 3, 4]
    assert batches.share_waited == pytest.approx(12 / 16)


def test_batches_end_when_no_cell_is_left_and_skip_what_nobody_needs(clock: Clock) -> None:
    roster = Roster({}, Callback())
    behind, ahead = (SimpleNamespace(key=key, epoch=0, next_step=step) for key, step in (("a", 0), ("b", 3)))
    roster.cells = {"a": behind, "b": ahead}  # type: ignore[dict-item]
    seen = []
    for step, _ in EpochBatches(slow_source(clock, 9, 0.0), roster, 0):
        seen.append((step, [cell.key for cell in roster.at(0, step)]))
        if step == 1:
            del roster.cells["a"]
        for cell in roster.at(0, step):
            cell.next_step += 1
        if step == 4:
            roster.cells.clear()
    assert seen == [(0, ["a"]), (1, ["a"]), (3, ["b"]), (4, ["b"])]


def test_each_epoch_records_it_and_the_log_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches, clock = BatchSource.batches, Clock()

    def late(self: BatchSource, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        for batch in batches(self, epoch, start_step):
            clock.now += 3.0 if epoch == 2 else 0.0
            yield batch

    def step(callback: Callback) -> None:
        clock.now += 1.0

    unit = unit_of("con/con", "sig/nca")
    folders = folders_of(unit, tmp_path)
    monkeypatch.setattr(BatchSource, "batches", late)
    monkeypatch.setattr(roster_module, "time", clock)
    monkeypatch.setattr(Callback, "step", step)
    train_unit(unit, folders)
    for folder in folders.values():
        shares = [record["metrics"]["time/data_wait_share"] for record in folder.records()]
        assert shares == pytest.approx([0.0, 0.75, 0.0])
        use = [record["metrics"] for record in folder.records()]
        assert all(0 < own["system/cpu_cores"] < 1.2 * (os.cpu_count() or 1) for own in use)
        assert all(10 < own["system/memory_mb"] < 1e6 for own in use)
        assert not any("system/gpu_memory_mb" in own for own in use)
    assert "75% waiting for data" in folders["con-con"].path("log.txt").read_text()
