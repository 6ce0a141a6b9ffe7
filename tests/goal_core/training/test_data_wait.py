"""The share of an epoch in which its steps wait for data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from goal_core.data import Batch, BatchSource
from goal_core.training import train_unit
from goal_core.training.data_wait import DataWait
from tests.helpers.training_cases import folders_of, unit_of


def slowly(count: int, seconds: float) -> Iterator[int]:
    for number in range(count):
        time.sleep(seconds)
        yield number


def test_only_the_time_until_a_batch_is_there_counts() -> None:
    wait = DataWait()
    assert wait.share == 0
    for _ in wait.watch(slowly(4, 0.03)):
        time.sleep(0.01)
    assert wait.waited >= 0.12
    assert wait.passed >= 0.16
    assert wait.share == pytest.approx(wait.waited / wait.passed)
    eager = DataWait()
    for _ in eager.watch(range(3)):
        time.sleep(0.01)
    assert eager.share < 0.2


def test_each_epoch_records_it_and_the_log_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = BatchSource.batches

    def late(self: BatchSource, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        for batch in batches(self, epoch, start_step):
            time.sleep(0.2 if epoch == 2 else 0)
            yield batch

    unit = unit_of("con/con", "sig/nca")
    folders = folders_of(unit, tmp_path)
    monkeypatch.setattr(BatchSource, "batches", late)
    train_unit(unit, folders)
    shares = [[record["metrics"]["time/data_wait_share"] for record in folder.records()] for folder in folders.values()]
    assert shares[0] == shares[1]
    assert shares[0][1] > 0.5
    assert shares[0][1] > shares[0][2]
    assert f"{shares[0][1]:.0%} waiting for data" in folders["con-con"].path("log.txt").read_text()
