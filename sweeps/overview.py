"""How many cells and trainings a sweep has, as the products that they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from goal_sweep.sweeps.axes import describe
from goal_sweep.sweeps.cells import ResolvedSweep
from goal_sweep.sweeps.schema import SweepConfig


def factors(sweep: ResolvedSweep) -> dict[str, int]:
    """The number of a sweep's own cells (`cells`), and the factors of which it is the product.

    An objective counts once for each different setting that it has, so there are more than names where parameters are
    axes.
    """
    cells = len(replace(sweep, trails=()).cells)
    backbones, seeds = len(sweep.config.model.backbones), len(sweep.config.seeds)
    return {"cells": cells, "backbones": backbones, "seeds": seeds, "objectives": cells // (backbones * seeds)}


def describe_size(sweep: ResolvedSweep) -> Iterator[str]:
    """Say how many cells and trainings a sweep has of its own, without those of a search, and why."""
    counts, names = factors(sweep), len(sweep.config.objectives.names)
    cells, objectives = _count(counts["cells"], "cell"), _count(names, "objective")
    if counts["objectives"] != names:
        objectives = f"{counts['objectives']} settings of {objectives}"
    yield f"{cells} = {_count(counts['backbones'], 'backbone')} x {_count(counts['seeds'], 'seed')} x {objectives}"
    if not sweep.config.axes:
        return
    yield f"axes: {'; '.join(describe(sweep.config.axes))}; what a value does not change is trained once"
    for trainings in sweep.by_stage:
        if len(trainings) != counts["cells"]:
            settings = len(trainings) // counts["cells"]
            yield f"  {trainings[0].stage.name}: {len(trainings)} trainings = {cells} x {settings} settings of it"


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
