"""Keeps on this machine what `plan --measure` has found of the memory of units on a GPU, for later plans and launches.

Times are not kept: they depend on what else the machine does, and finished trainings tell them better.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from goal_core.models.config import ModelConfig
from goal_core.training.config import StageConfig
from runners.execution.inputs import code_digest
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.prices import Kind, Measured
from runners.store.storage import cache_folder
from sweeps import content_id, to_mapping


def keep_memory(sweep: OpenedSweep, measured: Mapping[Kind, Measured]) -> None:
    """Keep what was measured of the memory of a sweep's units. Where nothing can be written, nothing is kept."""
    stages: dict[str, StageConfig] = {stage.name: stage for stage in sweep.config.stages}
    for (model, stage), found in measured.items():
        if sweep.config.resources.gpus and found.memory_mb is not None:
            with contextlib.suppress(OSError):
                _folder().mkdir(parents=True, exist_ok=True)
                (_folder() / _key(sweep, model, stages[stage])).write_text(json.dumps(found.memory_mb))


def kept_memory(sweep: OpenedSweep) -> dict[Kind, tuple[float, float]]:
    """Megabytes of a GPU that all cells of a unit share, and of each cell, as measured on this machine before."""
    found: dict[Kind, tuple[float, float]] = {}
    if not sweep.config.resources.gpus or not _folder().exists():
        return found
    for model in sweep.config.model.models:
        for stage in sweep.config.stages:
            with contextlib.suppress(OSError, ValueError, TypeError):
                common, own = json.loads((_folder() / _key(sweep, model, stage)).read_text())
                found[model, stage.name] = float(common), float(own)
    return found


def _key(sweep: OpenedSweep, model: ModelConfig, stage: StageConfig) -> str:
    """What the memory depends on, as 16 hex digits."""
    config = sweep.config
    settings = [to_mapping(model), to_mapping(stage), to_mapping(config.data), to_mapping(config.execution)]
    return content_id([*settings, config.precision, config.resources.gpus, sweep.data_fingerprint, code_digest()])


def _folder() -> Path:
    return cache_folder() / "measured-memory"
