"""The time left: priced at first, measured in the end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from runners.launch.launch import _prices
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.pace import Pace, epoch_prices
from runners.planning.estimate import fit
from tests.helpers.in_process import launch, sweep_in
from tests.helpers.planning_cases import devices_of


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_before_the_first_epoch_it_is_the_price_however_long_ray_takes(clock: list[float]) -> None:
    pace = Pace({"frozen": 3.0, "finetune": 20.0}, lanes=2)
    assert pace.left({"frozen": 10, "finetune": 4}, cells={}) == (55.0, True)
    clock[0] += 70
    assert pace.left({"frozen": 10, "finetune": 4}, cells={}) == (55.0, True)
    assert pace.left({"frozen": 0}, cells={}) == (0.0, False)
    assert Pace({"finetune": 1.0}).left({"frozen": 10}, cells={"frozen": 2}) is None


def test_measured_epochs_take_over_and_stand_for_other_stages_by_price(clock: list[float]) -> None:
    pace = Pace({"frozen": 3.0, "finetune": 30.0}, lanes=2)
    clock[0] += 70  # Ray starts
    pace.begin(at_once=2)
    clock[0] += 12
    pace.epoch_done("frozen")
    # One of four cells is measured: 12 s for an epoch. A quarter of that, and three quarters of the price.
    assert pace.left({"frozen": 9}, cells={"frozen": 4}) == (0.25 * 108 + 0.75 * 13.5, True)
    for _ in range(3):
        pace.epoch_done("frozen")
    assert pace.left({"frozen": 6}, cells={"frozen": 4}) == (18.0, False)  # 3 s an epoch
    assert pace.left({"frozen": 6, "finetune": 1}, cells={"frozen": 4}) == (48.0, False)  # ten times as long
    assert pace.left({"frozen": 6, "unpriced": 2}, cells={"frozen": 4}) == (24.0, False)  # all alike


def test_while_the_first_epochs_are_slower_than_their_price_the_time_left_grows(clock: list[float]) -> None:
    pace = Pace({"frozen": 3.0}, lanes=2)
    pace.begin()
    clock[0] += 5
    assert pace.left({"frozen": 20}, cells={"frozen": 4}) == (30.0, True)
    clock[0] += 5
    assert pace.left({"frozen": 20}, cells={"frozen": 4}) == (50.0, True)  # at least 10 s for an epoch of four cells


def test_units_that_start_show_how_many_train_at_once() -> None:
    pace = Pace({"frozen": 3.0})
    pace.begin(at_once=3)
    assert pace.left({"frozen": 10}, cells={"frozen": 3}) == (10.0, True)


def priced(sweep: OpenedSweep) -> dict[str, float]:
    devices = devices_of(sweep.config)
    return epoch_prices(sweep, fit(sweep.trainings, _prices(sweep, devices), devices))


@pytest.mark.slow
def test_the_price_comes_from_the_store_or_else_from_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = sweep_in(tmp_path)
    calibrated = priced(sweep)
    assert set(calibrated) == {"frozen", "finetune"}
    assert all(price > 0 for price in calibrated.values())
    outcome = launch(sweep, monkeypatch)
    assert outcome.progress.pace.prices == calibrated
    measured = priced(sweep)
    attempts = [sweep.store.folder(one).attempts.all() for one in sweep.by_stage[0]]
    taken = [(one.ended - one.started) / one.shared_by for (one,) in attempts if one.ended is not None]
    start = 3.0 / (2 * 3)  # of a process that trains two cells for three epochs
    assert measured["frozen"] == pytest.approx(sum(taken) / len(taken) / 3 + start)
    assert measured != calibrated
