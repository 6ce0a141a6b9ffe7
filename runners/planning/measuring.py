"""Measure what units cost on this machine, by training a few steps of each kind as a launch would train them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from goal_sweep.goal_core.data import Dataset, open_dataset
from goal_sweep.goal_core.training import UnitPlan, UnitSpeed, measure_speed
from goal_sweep.runners.planning.prices import BASE_MB, Kind, Known, Prices, largest
from goal_sweep.runners.planning.processes import process_pool
from goal_sweep.sweeps import Unit


def measure(
    units: Iterable[Unit], prices: Prices, at_once: int, dataset: Dataset, plan: Callable[[Unit], UnitPlan]
) -> dict[Kind, Known]:
    """Measure the largest unit of each model in each stage, as it will run.

    As many processes as a launch would have run at the same time, since they share the machine's memory and caches.
    They keep nothing.

    Args:
        units: the units of a launch.
        prices: what the arithmetic says of them.
        at_once: how many of them this machine trains at the same time.
        dataset: the data.
        plan: turns a unit into what the trainer takes.

    Raises:
        GoalError: the data, the weights or the device are not what a unit needs, or a cell fails.
    """
    outside_mb = BASE_MB["cuda"] if prices.config.resources.gpus else 0.0
    known = dict[Kind, Known]()
    with process_pool(at_once, tasks_each=1) as processes:
        for kind, unit in largest(units).items():
            as_run = prices.as_run(unit)
            started = [processes.submit(_measure, plan(as_run)) for _ in range(at_once)]
            speeds = [process.result() for process in started]
            seconds = [speed.unit_s(unit.stage, unit.trainings[0].epochs, dataset) for speed in speeds]
            once_s = prices.size.images * statistics.fmean(speed.feature_image_s for speed in speeds)
            memory = max((mb for speed in speeds if (mb := speed.memory_mb) is not None), default=None)
            if memory is not None:
                memory = (memory + outside_mb) / prices.memory_shape(as_run)
            known[kind] = Known("measured", statistics.fmean(seconds) / prices.time_shape(unit), once_s, memory)
    return known


def _measure(plan: UnitPlan) -> UnitSpeed:
    return measure_speed(plan, open_dataset(plan.data), steps=12)
