"""How many cells a unit gets where `cells_per_unit` is `auto`: as many as let its stage end earliest.

The cells of a unit have a part c of their work in common, so a unit of k cells takes as long as c + k (1 - c) cells by
themselves, and a stage takes that for each turn of its units on the devices, the longest first. The parts are
constants, so that a plan and a launch choose alike, whatever has been measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from goal_sweep.sweeps import SweepConfig, Training, Unit, pack, pack_chain

FROZEN, TRAINED = 0.9, 0.05
"""The part that cells have in common: where they share a backbone's passes, and where they share only the batches."""
TIE = 1.05
"""Ends and device times that differ by no more than this factor count as equal."""


def common_part(unit: Unit) -> float:
    """The part of a cell's work that it has in common with its unit."""
    if unit.trainings[0].cell.data.image is None or unit.features:
        return 0.0
    return FROZEN if unit.stage.shares_backbone else TRAINED


def solo_times(unit: Unit) -> float:
    """How long a unit takes, in times of one of its cells by itself."""
    return common_part(unit) + len(unit.trainings) * (1 - common_part(unit))


def choose(trainings: Sequence[Training], config: SweepConfig, slots: int, fit: Mapping[str, int]) -> dict[str, int]:
    """Choose the largest number of cells in the units of each stage for which the sweep leaves it open.

    Where several numbers end alike, the fewest units are taken, because each has to start.

    Args:
        trainings: the trainings still to do, of all stages.
        config: the sweep.
        slots: how many units train at the same time.
        fit: by stage, the most cells whose unit fits into memory, 0 for none; nothing where that is not known.
    """
    groups: dict[str, int] = {}
    is_open = config.execution.cells_per_unit == "auto" and config.execution.sharing != "none"
    for unit in pack(trainings, config.execution) if is_open else ():
        groups[unit.stage.name] = max(groups.get(unit.stage.name, 0), len(unit.trainings))
    limits: dict[str, int] = {}
    for stage, group in groups.items():
        largest, costs = min(group, max(1, fit.get(stage, group))), dict[int, tuple[float, int]]()
        for limit in {-(-largest // parts) for parts in range(1, largest + 1)}:
            chain = pack_chain(trainings, config.execution, {**limits, stage: limit})
            times = [solo_times(unit) for unit in chain if unit.stage.name == stage]
            turns = sorted(times, reverse=True)[::slots]
            costs[limit] = sum(turns), len(times)
        least = TIE * min(cost for cost, _ in costs.values())
        alike = {limit: units for limit, (cost, units) in costs.items() if cost <= least}
        limits[stage] = max(alike, key=lambda limit: (-alike[limit], -limit))
    return limits
