"""The tags and parameters that goal-sweep writes to MLflow for a sweep and its trainings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from runners.tracking import schema as names
from sweeps import Cell, ResolvedSweep, Training, content_id
from sweeps.identity import tracked_settings

_MAX_TEXT = 4000


def sweep_tags(sweep: ResolvedSweep) -> dict[str, str]:
    """Tags of the parent run: what the sweep asks for."""
    config = sweep.config
    objectives = [objective.name for objective in config.objectives.configs]
    keys = {cell.objective.name: objective_key(cell) for cell in sweep.cells}
    return {
        names.ROLE: names.ROLE_SWEEP,
        names.SWEEP: config.name,
        names.SEEDS: json.dumps(list(config.seeds)),
        names.OBJECTIVES: json.dumps(objectives),
        names.STAGES: json.dumps([stage.name for stage in config.stages]),
        names.OBJECTIVE_KEYS: json.dumps([keys[name] for name in objectives]),
        names.SETTINGS_KEYS: json.dumps(list(dict.fromkeys(map(settings_key, _by_cell(sweep))))),
        names.DATA_FINGERPRINT: sweep.data_fingerprint,
    }


def training_tags(training: Training) -> dict[str, str]:
    """Tags that identify a training's run. Tags of its status and its code come from its attempts."""
    cell = training.cell
    return {
        names.ROLE: names.ROLE_CELL,
        names.CELL: cell.id,
        names.STAGE: training.stage.name,
        names.STAGE_KEY: training.key,
        names.PAIR: cell.objective.pair,
        names.TRIPLET: cell.objective.triplet,
        names.SEED: str(cell.seed),
        names.BACKBONE: cell.model.backbone.name,
        names.FRAMEWORK: cell.model.framework,
        names.DATASET: cell.data.name,
        names.VARIANT: cell.objective.variant,
        names.OBJECTIVE: cell.objective.name,
        names.OBJECTIVE_KEY: objective_key(cell),
        names.SETTINGS_KEY: settings_key(training),
        names.DATA_FINGERPRINT: cell.data_fingerprint,
    }


def training_params(training: Training) -> dict[str, str]:
    """Parameters of a training's run: the settings that its key hashes, which never change. Names are dotted paths."""
    own = {"objective": training.cell.objective.resolved(), "seed": training.cell.seed}
    return dict(_flat(own, "")) | _shared_params(training)


def objective_key(cell: Cell) -> str:
    """Hash of an objective with all its parameters: 16 hex digits."""
    return content_id(cell.objective.resolved())


def settings_key(training: Training) -> str:
    """Hash of all that a result depends on, except the data's content, the objective and the seed: 16 hex digits."""
    return content_id(_shared_params(training))


def _by_cell(sweep: ResolvedSweep) -> Iterator[Training]:
    for stages in zip(*sweep.by_stage, strict=True):
        yield from stages


def _shared_params(training: Training) -> dict[str, str]:
    cell = training.cell
    settings = tracked_settings(cell.data, cell.model, training.stages, training.precision)
    return {**dict(_flat(settings, "")), "model.backbone_weights": cell.weights_id}


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _text(value)


def _text(value: Any) -> str:
    """Write equal settings as equal text: `1` and `1.0` are the same number."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)[:_MAX_TEXT]
