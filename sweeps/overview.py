"""How many cells and trainings a sweep has, as the products that they are."""

from __future__ import annotations

from dataclasses import replace

from goal_sweep.sweeps.axes import axis_names
from goal_sweep.sweeps.cells import ResolvedSweep
from goal_sweep.sweeps.schema import SweepConfig


def factors(sweep: ResolvedSweep) -> dict[str, int]:
    """The number of a sweep's own cells, and its factors; an objective counts once for each setting that it has."""
    cells = len(replace(sweep, studies=()).cells)
    backbones, seeds = len(sweep.config.model.backbones), len(sweep.config.seeds)
    return {"cells": cells, "backbones": backbones, "seeds": seeds, "objectives": cells // (backbones * seeds)}


def describe_size(sweep: ResolvedSweep) -> str:
    """How many cells a sweep has of its own, without those of a search, as a product."""
    own, config = factors(sweep), sweep.config
    names = len(config.objectives.names)
    counts = {key: f"{count} {key if count != 1 else key[:-1]}" for key, count in {**own, "objectives": names}.items()}
    if own["objectives"] != names:
        counts["objectives"] = f"{own['objectives']} settings of {counts['objectives']}"
    axes = f", axes {', '.join(axis_names(config.axes))}" if config.axes else ""
    return f"{counts['cells']} = {counts['backbones']} x {counts['seeds']} x {counts['objectives']}{axes}"


def unopened(config: SweepConfig) -> ResolvedSweep:
    """A sweep whose data and weights are not on this machine. Its ids mean nothing."""
    unknown = dict.fromkeys((backbone.name for backbone in config.model.backbones), "unknown")
    return ResolvedSweep(config=config, data_fingerprint="unknown", weights=unknown)
