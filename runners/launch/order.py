"""The order in which units start, in a launch as in its simulation, and what the simulation takes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runners.launch.price import features_of
from runners.launch.prices import Prices
from runners.launch.simulation import PlannedUnit
from sweeps import SweepConfig, Training, Unit, pack

Costs = dict[tuple[object, ...], tuple[float, float, float]]
"""By kind of unit: its seconds with its start, those of what is made once, and the share in which it is busy."""


def remaining_s(unit: Unit, later: Mapping[Training, Sequence[Training]], config: SweepConfig, auto: Mapping[str, int],
                prices: Prices) -> float:  # fmt: skip
    """Device seconds of a unit, its start included, and of the longest chain of units that follows it.

    Args:
        unit: the unit.
        later: the trainings that start from each training.
        config: the sweep.
        auto: as of `pack`.
        prices: what units cost.
    """
    follow = pack([one for before in unit.trainings for one in later.get(before, ())], config.execution, auto)
    own = prices.start_s(unit) + prices.seconds(unit)
    return own + max((remaining_s(one, later, config, auto, prices) for one in follow), default=0.0)


def planned(
    units: Sequence[tuple[Unit, int | None]],
    config: SweepConfig,
    prices: Prices,
    cache: Costs | None = None,
    *,
    features_first: bool = False,
    per_gpu: Mapping[str, int] | None = None,
) -> list[PlannedUnit]:
    """Turn units into what the simulation takes, in the order in which a launch starts them.

    Args:
        units: as of `pack_chain`.
        config: the sweep.
        prices: what units cost.
        cache: prices found before, by kind of unit.
        features_first: as of `runners.launch.packing.Packing`.
        per_gpu: how many units share a device, by stage; 1 where there is none.
    """
    cache = {} if cache is None else cache
    number = {stage.name: place for place, stage in enumerate(config.stages)}
    costs = []
    for unit, _ in units:
        kind = (unit.trainings[0].cell.model, unit.stage.name, len(unit.trainings))
        if kind not in cache:
            busy = prices.busy(unit)
            cache[kind] = (
                prices.start_s(unit) + prices.seconds(unit),
                prices.once_s(unit),
                1.0 if busy is None else busy,
            )
        costs.append(cache[kind])
    remaining = [seconds for seconds, *_ in costs]
    for place in range(len(units) - 1, -1, -1):  # those that follow a unit come after it
        after = units[place][1]
        if after is not None:
            remaining[after] = max(remaining[after], costs[after][0] + remaining[place])
    features = [features_of(unit) if once else "" for (unit, _), (_, once, _) in zip(units, costs, strict=True)]
    numbers = [number[unit.stage.name] for unit, _ in units]
    order = ranks(numbers, remaining, features, set() if features_first else None)
    slots = [(per_gpu or {}).get(unit.stage.name, 1) for unit, _ in units]
    return [
        PlannedUnit(seconds=seconds, after=after, rank=rank, once=needs, once_s=once, slots=share, busy=busy)
        for (_, after), (seconds, once, busy), needs, rank, share in zip(
            units, costs, features, order, slots, strict=True
        )
    ]


def ranks(
    stages: Sequence[int], remaining: Sequence[float], features: Sequence[str], made: set[str] | None
) -> list[tuple[int, float]]:
    """The order in which units start, the lowest first, in a launch as in its simulation.

    Units of earlier stages come first, then those with the most work to do, counted with what follows them. If units
    compute features first, then of the units that need the same features, the one with the most work comes before all
    others of its stage. The others then find the features there, where other units fill the time until then.

    Args:
        stages: the number of each unit's stage.
        remaining: device seconds of each unit and of what follows it.
        features: the text of the features that each unit needs; empty for none.
        made: features that units before these compute, to which those of these units are added; None if units do not
            compute features first.
    """
    computes = set()
    if made is not None:
        for place in sorted(range(len(stages)), key=lambda place: (stages[place], -remaining[place])):
            if features[place] and features[place] not in made:
                made.add(features[place])
                computes.add(place)
    return [
        (2 * stage + (place not in computes), -left)
        for place, (stage, left) in enumerate(zip(stages, remaining, strict=True))
    ]
