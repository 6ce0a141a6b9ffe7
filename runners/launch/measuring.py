"""Measure what units cost on this machine, by training a few steps of each kind as a launch would train them.

Each kind of unit is measured with one cell and with several, because a unit's price is what its cells share plus what
each of them adds. As many processes as a launch would have run at the same time, since they share the machine's memory
and caches. They keep nothing.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import statistics
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from goal_core.data import num_batches, open_dataset
from goal_core.training import UnitPlan, UnitSpeed, measure_speed
from runners.launch.devices import Devices
from runners.launch.kept_memory import keep_memory
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.prices import Kind, Measured
from sweeps import Training, Unit, pack

STEPS: Final = 12
"""Steps that each unit trains, the first of which is not counted."""
FEW: Final = 3
"""Cells of the larger unit in a stage that trains the backbone, where each cell adds the same."""


class _Found(NamedTuple):
    """What one process measured."""

    speed: UnitSpeed
    memory_mb: float | None


def measure(sweep: OpenedSweep, trainings: Sequence[Training], devices: Devices) -> dict[Kind, Measured]:
    """Measure each kind of unit of some trainings. What this finds of a GPU's memory is kept on this machine.

    Args:
        sweep: the sweep.
        trainings: the trainings still to do.
        devices: the devices of this machine.

    Returns:
        Prices by model and stage.

    Raises:
        GoalError: the data, the weights or the device are not what a unit needs, or a cell fails.
    """
    largest: dict[Kind, Unit] = {}
    for unit in pack(trainings, sweep.config.execution):
        kind = unit.trainings[0].cell.model, unit.stage.name
        if kind not in largest or len(unit.trainings) > len(largest[kind].trainings):
            largest[kind] = unit
    gpus = sweep.config.resources.gpus
    at_once = max(1, int(1 / gpus + 1e-6)) if gpus else devices.count
    spawn = multiprocessing.get_context("spawn")  # a forked process could not use CUDA
    with ProcessPoolExecutor(at_once, mp_context=spawn, max_tasks_per_child=1) as processes:
        found = {kind: _price(sweep, unit, processes, at_once) for kind, unit in largest.items()}
    keep_memory(sweep, found)
    return found


def _price(sweep: OpenedSweep, unit: Unit, processes: ProcessPoolExecutor, at_once: int) -> Measured:
    """Measure a unit with all its cells, or a few, and with one."""
    few = FEW if unit.stage.trains_backbone else len(unit.trainings)
    sizes = sorted({1, min(few, len(unit.trainings))})
    found = {}
    for count in sizes:
        plan = sweep.plan_unit(Unit(trainings=unit.trainings[:count]))
        found[count] = [one.result() for one in [processes.submit(_measure, plan) for _ in range(at_once)]]
    seconds = {count: _unit_seconds(sweep, unit, [one.speed for one in of_size]) for count, of_size in found.items()}
    memory = {
        count: max((one.memory_mb for one in of_size if one.memory_mb is not None), default=None)
        for count, of_size in found.items()
    }
    common_s, own_s = _line(seconds)
    known = {count: mb for count, mb in memory.items() if mb is not None}
    images = sum(split.num_images for split in sweep.dataset.splits.values())
    return Measured(
        common_s=common_s,
        own_s=own_s,
        once_s=images * statistics.fmean(one.speed.feature_image_s for one in found[sizes[-1]]),
        memory_mb=_line(known) if len(known) == len(sizes) else None,
    )


def _unit_seconds(sweep: OpenedSweep, unit: Unit, speeds: Sequence[UnitSpeed]) -> float:
    """Seconds of a whole unit, from the speed of a few of its steps."""
    stage, splits = unit.stage, sweep.dataset.splits
    steps = num_batches(splits["train"].num_captions, stage.batch_size, stage.drop_last)
    warm = stage.warmup_epochs / stage.epochs
    step_s = statistics.fmean(warm * one.warm_step_s + (1 - warm) * one.step_s for one in speeds)
    eval_s = statistics.fmean(one.eval_image_s for one in speeds)
    epoch_s = statistics.fmean(one.epoch_s for one in speeds)
    epoch = steps * step_s + splits["val"].num_images * eval_s + epoch_s
    return stage.epochs * epoch + splits["test"].num_images * eval_s


def _line(values: dict[int, float]) -> tuple[float, float]:
    """What does not depend on the number of cells and what each adds, from the values of one or two numbers."""
    most = max(values)
    if most == 1:
        return 0.0, values[1]
    common = min(max(0.0, (most * values[1] - values[most]) / (most - 1)), values[most])
    return common, (values[most] - common) / most


def _measure(plan: UnitPlan) -> _Found:
    """Measure a unit in a process of its own."""
    with _peak_memory(plan.device) as peak:
        speed = measure_speed(plan, open_dataset(plan.data), steps=STEPS)
    return _Found(speed, peak[0] if peak else None)


@contextlib.contextmanager
def _peak_memory(device: str) -> Iterator[list[float]]:
    """Gives the most memory in megabytes that this process has had, once the block has ended; empty if unknown.

    On a GPU, what torch has reserved there; otherwise the resident set, which Linux tells.
    """
    peak: list[float] = []
    yield peak
    if device == "cuda":
        import torch

        peak.append(torch.cuda.max_memory_reserved() / 1e6)
        return
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                peak.append(int(line.split()[1]) * 1024 / 1e6)
