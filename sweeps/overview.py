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
    cells, backbones, seeds = len(_own(sweep).cells), len(sweep.config.model.backbones), len(sweep.config.seeds)
    return {"cells": cells, "backbones": backbones, "seeds": seeds, "objectives": cells // (backbones * seeds)}


def describe_size(sweep: ResolvedSweep) -> Iterator[str]:
    """Say how many cells and trainings a sweep has of its own, without those of a search, and why."""
    config, factor, names = sweep.config, factors(sweep), len(sweep.config.objectives.names)
    cells, objectives = _count(factor["cells"], "cell"), _count(names, "objective")
    if factor["objectives"] != names:
        objectives = f"{factor['objectives']} settings of {objectives}"
    yield f"{cells} = {_count(factor['backbones'], 'backbone')} x {_count(factor['seeds'], 'seed')} x {objectives}"
    if not config.axes:
        return
    yield f"axes: {'; '.join(describe(config.axes))}; what a value does not change is trained once"
    for trainings in _own(sweep).by_stage:
        if len(trainings) != factor["cells"]:
            settings = len(trainings) // factor["cells"]
            yield f"  {trainings[0].stage.name}: {len(trainings)} trainings = {cells} x {settings} settings of it"


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)


def _own(sweep: ResolvedSweep) -> ResolvedSweep:
    return replace(sweep, trails=())


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
