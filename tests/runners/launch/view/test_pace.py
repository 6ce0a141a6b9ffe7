"""The time left: priced at first, measured in the end, and true all the while."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest

from goal_sweep.runners.launch.view.progress import Pace
from goal_sweep.sweeps import Training, Unit, pack
from tests.helpers.sweep_cases import scenes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def units_of(*overrides: str) -> list[Unit]:
    sweep = scenes("execution={sharing: trunk, cells_per_unit: 5}", "seeds=[1]", *overrides)
    return [unit for stage in sweep.by_stage for unit in pack(stage, sweep.config.execution)]


class Moment(NamedTuple):
    """What was said at a moment, and what was true."""

    at: float
    said: float | None
    priced: bool
    true: float


def simulate(
    units: Sequence[Unit],
    lanes: int,
    epoch_s: Mapping[str, float],
    start_s: float,
    pace: Pace,
    clock: list[float],
    factor: Callable[[], float] = lambda: 1.0,
) -> list[Moment]:
    """Run units on some lanes, in which an epoch of each stage takes so long, and the first one longer by the start.

    Each epoch lasts longer by a factor, in full minutes.

    Returns:
        What `pace` says every minute.
    """
    left = {training: training.epochs for unit in units for training in unit.trainings}
    waiting, running = list(units), dict[float, list[Unit]]()
    began, said = clock[0], list[tuple[float, float | None, bool]]()

    def length(unit: Unit) -> float:
        return 60 * round(epoch_s[unit.stage.name] * factor() / 60)

    def start() -> None:
        while sum(map(len, running.values())) < lanes and (
            unit := next((one for one in waiting if _can_start(one, left)), None)
        ):
            waiting.remove(unit)
            pace.begin(unit, 0)
            running.setdefault(clock[0] + start_s + length(unit), []).append(unit)

    def end_epoch(unit: Unit) -> None:
        for training in unit.trainings:
            left[training] -= 1
            pace.epoch_done(training, training.epochs - left[training], epoch_s[unit.stage.name] / len(unit.trainings))
        if not left[training]:
            pace.end(unit)
        else:
            running.setdefault(clock[0] + length(unit), []).append(unit)

    start()
    while running:
        for unit in running.pop(clock[0], ()):
            end_epoch(unit)
        start()
        told = pace.left(left.__getitem__)
        said.append((clock[0], told and told.seconds, bool(told and told.priced)))
        clock[0] += 60
    end = said[-1][0]
    return [Moment(at - began, seconds, priced, end - at) for at, seconds, priced in said]


def _can_start(unit: Unit, left: Mapping[Training, int]) -> bool:
    before = unit.trainings[0].before
    return before is None or not left[before]


HOURS = {"frozen": 3600.0, "finetune": 7200.0}


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("start_s", [0.0, 600.0])
def test_at_constant_speed_it_is_true_within_a_tenth_and_never_counts_up(
    clock: list[float], lanes: int, start_s: float
) -> None:
    units = units_of("stages=[{name: frozen, epochs: 4, lr: 0.1}, {name: finetune, epochs: 3, lr: 0.1}]")
    pace = Pace([units], lanes, lambda unit: HOURS[unit.stage.name], priced=True)

    moments = simulate(units, lanes, HOURS, start_s, pace, clock)

    measured = next(moment.at for moment in moments if not moment.priced)
    for moment in moments:
        assert moment.said is not None
        share = 0.2 if start_s and moment.at < measured else 0.01  # a first epoch tells how long a start takes
        assert moment.said == pytest.approx(moment.true, rel=share, abs=60 + start_s)
    if not start_s:
        assert all(later.said <= earlier.said for earlier, later in pairwise(moments))  # type: ignore[operator]


def test_epochs_of_different_length_move_it_little(clock: list[float]) -> None:
    units = units_of("stages=[{name: frozen, epochs: 28, lr: 0.1}]")
    pace = Pace([units], 1)
    lengths = random.Random(1)

    moments = simulate(units, 1, {"frozen": 3600.0}, 0.0, pace, clock, lambda: lengths.uniform(0.8, 1.2))

    for before, moment in pairwise(moment for moment in moments if moment.at > 5 * 3600):
        assert moment.said == pytest.approx(moment.true, rel=0.1, abs=3600)
        assert moment.said < 1.01 * before.said  # type: ignore[operator]


def test_the_parts_of_a_search_that_follow_count(clock: list[float]) -> None:
    first, second, third = units_of("stages=[{name: frozen, epochs: 4, lr: 0.1}]")
    pace = Pace([[first, second], [third]], 2, lambda unit: 60.0, priced=True)

    left = pace.left(lambda training: training.epochs)

    assert left is not None
    assert left.seconds == 2 * 4 * 60  # the third waits for both


def test_without_a_price_it_is_true_after_the_first_epoch_of_a_sweep_of_one_stage(clock: list[float]) -> None:
    units = units_of("stages=[{name: frozen, epochs: 28, lr: 0.1}]")
    pace = Pace([units], 3)

    moments = simulate(units, 3, {"frozen": 3600.0}, 0.0, pace, clock)

    assert moments[0].true == 28 * 3600
    assert [moment.said for moment in moments[:60]] == [None] * 60
    assert all(moment.said == pytest.approx(moment.true) for moment in moments[60:])


def test_a_price_that_was_wrong_gives_way_to_the_speed(clock: list[float]) -> None:
    units = units_of("stages=[{name: frozen, epochs: 10, lr: 0.1}]")
    pace = Pace([units], 1, lambda unit: 60.0, priced=True)

    moments = simulate(units, 1, {"frozen": 3600.0}, 0.0, pace, clock)

    assert (moments[0].said, moments[0].priced) == (30 * 60.0, True)
    assert moments[59].said > 9 * 3500  # type: ignore[operator]  # an epoch of the first took that long already
    assert all(moment.said == pytest.approx(moment.true) and not moment.priced for moment in moments[60:])


def test_units_that_start_show_how_many_train_at_once() -> None:
    units = units_of("stages=[{name: frozen, epochs: 4, lr: 0.1}]")
    pace = Pace([units])
    for unit in units:
        pace.begin(unit, 0)
    assert pace.lanes == len(units) == 3
