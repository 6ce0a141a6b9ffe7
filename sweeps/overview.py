"""How many cells and trainings a sweep has, as the products that they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from goal_sweep.sweeps.axes import axis_names, value_text
from goal_sweep.sweeps.cells import ResolvedSweep
from goal_sweep.sweeps.schema import SweepConfig


def factors(sweep: ResolvedSweep) -> dict[str, int]:
    """The number of a sweep's own cells, and its factors; an objective counts once for each setting that it has."""
    cells = len(replace(sweep, trails=()).cells)
    backbones, seeds = len(sweep.config.model.backbones), len(sweep.config.seeds)
    return {"cells": cells, "backbones": backbones, "seeds": seeds, "objectives": cells // (backbones * seeds)}


def describe_size(sweep: ResolvedSweep) -> Iterator[str]:
    """Say how many cells and trainings a sweep has of its own, without those of a search, and why."""
    own, config = factors(sweep), sweep.config
    names = len(config.objectives.names)
    counts = {key: f"{count} {key if count != 1 else key[:-1]}" for key, count in {**own, "objectives": names}.items()}
    if own["objectives"] != names:
        counts["objectives"] = f"{own['objectives']} settings of {counts['objectives']}"
    yield f"{counts['cells']} = {counts['backbones']} x {counts['seeds']} x {counts['objectives']}"
    if config.axes:
        named = zip(axis_names(config.axes), config.axes, strict=True)
        axes = "; ".join(f"{name} {', '.join(map(value_text, axis.values))}" for name, axis in named)
        yield f"axes: {axes}; what a value does not change is trained once"
        for trainings in (one for one in sweep.by_stage if len(one) != own["cells"]):
            product = f"{counts['cells']} x {len(trainings) // own['cells']} settings of it"
            yield f"  {trainings[0].stage.name}: {len(trainings)} trainings = {product}"


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)
