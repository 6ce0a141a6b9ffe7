"""What a search will cost, before it runs: with units that candidates share, and with each training by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runners.launch.devices import Devices
from runners.launch.packing import choose
from runners.launch.prices import Prices
from runners.launch.tuning.replay import Ended, Read, replay
from sweeps import ResolvedSweep, Training, Unit, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCost:
    """What is left of a search, and what all of it costs. Seconds are device seconds; None where a price is unknown."""

    fewest: int
    """Candidates of the objective that has the fewest, because its settings have no more different values."""
    most: int
    """Candidates of the objective that has the most."""
    trainings: int
    """Trainings of candidates: all stages, seeds, and parts of stages after which candidates are compared."""
    left: int
    """Those that are not done."""
    rounds: int
    """Times that the search waits for scores before it proposes more, or lets the better ones go on."""
    units: int
    """Units into which all of them are packed."""
    shared_s: float | None
    unshared_s: float | None
    default_s: float | None
    """The sweep's own grid, in units that its cells share. The tuned grid costs as much at most."""
    default_unshared_s: float | None


def search_cost(sweep: ResolvedSweep, read: Read, prices: Prices, devices: Devices) -> SearchCost:
    """Foresee a search. Where the scores decide what follows, the earlier candidates are taken for the better ones.

    Args:
        sweep: the sweep, which has a `tune` block.
        read: reads how trainings ended.
        prices: what units cost.
        devices: the devices to plan for.
    """
    bare = replace(sweep, candidates=(), chosen=())
    known: dict[Training, Ended | None] = {}

    def foreseen(trainings: Sequence[Training]) -> Mapping[Training, Ended]:
        known.update(read(trainings))
        return {one: known[one] or _fake(sweep, one) for one in trainings}

    candidates = replay(bare, foreseen).candidates
    trainings = [one for one in replace(bare, candidates=candidates).trainings if one.number is not None]
    rounds: dict[tuple[int, int], list[Training]] = {}
    for one in trainings:
        rounds.setdefault(_round(sweep, one), []).append(one)
    units = [unit for part in rounds.values() for unit in _packed(sweep, part, prices, devices)]
    counts = Counter(one.study for one in candidates)
    return SearchCost(
        fewest=min(counts.values()),
        most=max(counts.values()),
        trainings=len(trainings),
        left=sum(known.get(one) is None for one in trainings),
        rounds=len(rounds),
        units=len(units),
        shared_s=_total(units, prices),
        unshared_s=_total(_apart(trainings), prices),
        default_s=_total(_packed(sweep, bare.trainings, prices, devices), prices),
        default_unshared_s=_total(_apart(bare.trainings), prices),
    )


def _fake(sweep: ResolvedSweep, training: Training) -> Mapping[str, Any]:
    """A result that a training might have: the earlier candidates are the better ones."""
    assert sweep.config.tune is not None
    return {"metrics": {sweep.config.tune.metric: -float(training.number or 0)}, "epochs": training.epochs}


def _round(sweep: ResolvedSweep, training: Training) -> tuple[int, int]:
    """Which trainings wait for the same scores."""
    tune = sweep.config.tune
    assert tune is not None
    batch = (training.number or 0) // tune.batch if tune.search == "tpe" else 0
    last = training.stage.name == sweep.config.stages[-1].name
    return batch, training.begins if last else 0


def _packed(sweep: ResolvedSweep, trainings: Sequence[Training], prices: Prices, devices: Devices) -> list[Unit]:
    choice = choose(trainings, sweep.config, prices, devices)
    return pack(trainings, sweep.config.execution, choice.packing.limits)


def _apart(trainings: Sequence[Training]) -> list[Unit]:
    return [Unit(trainings=(one,)) for one in trainings]


def _total(units: Sequence[Unit], prices: Prices) -> float | None:
    return None if any(prices.basis(unit) == "assumed" for unit in units) else prices.total_s(units)
