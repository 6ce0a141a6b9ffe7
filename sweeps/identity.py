"""Content hashes: equal exactly where the trained model is meant to be equal."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from goal_core.data.config import DataConfig
from goal_core.frameworks import framework_of
from goal_core.models.config import ModelConfig
from goal_core.numerics import NUMERICS_VERSION
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig
from sweeps.mapping import to_mapping

_NOT_IN_CELL_ID = frozenset(
    {
        # A label, and which files they are.
        *("format", "name", "root", "annotations", "test_file", "train_files", "val_file", "image_root"),
        # The fingerprint holds the drawings themselves.
        *("num_train", "num_val", "num_test", "data_seed"),
    }
)
"""Settings of the data that say nothing which the data's fingerprint does not say. A new setting counts by default."""

_NOT_IN_STAGE_KEY = frozenset({"checkpoint_every", "collapse_patience"})
"""Settings of a stage that cannot move a number of a finished cell: when it is saved, and when it is given up."""

_ADDED_LATER = {
    **{"bert_lr_scale": 1.0, "backbone_lr_scale": 1.0, "frozen_epochs": 0, "ramp_epochs": 0},
    "select_on": "val",
    **{"beta2": 0.999, "schedule": "drops", "lr_warmup": 0.0, "bn_mode": "frozen_eval", "vocabulary": "train_val"},
}
"""Settings of a stage or the data, and the values at which they change nothing and leave ids as they were before."""


def canonical_json(value: Any) -> str:
    """One text for equal content: keys sorted, numbers by value (`1` and `1.0`, `1e-4` and `0.0001` are the same).

    Args:
        value: dicts with text keys, lists, text, booleans, None and finite numbers.

    Raises:
        ValueError: a number is not finite.
    """
    return json.dumps(_by_value(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _by_value(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, dict):
        return {key: _by_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_by_value(item) for item in value]
    return value


def content_id(value: Any) -> str:
    """The first 16 hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def cell_id(
    *,
    data: DataConfig,
    data_fingerprint: str,
    model: ModelConfig,
    weights_id: str,
    objective: ObjectiveConfig,
    seed: int,
) -> str:
    """The id of a cell: all that makes its model, except how its stages train it.

    Args:
        data: the dataset; of its settings those count that change what the model sees.
        data_fingerprint: hash of the images and captions.
        model: framework, backbone, text encoder, embedding; paths of weights and of `init_from` do not count.
        weights_id: what the first weights are, by content (`goal_core.training.initial_weights_id`).
        objective: counts with all its parameters, so a default written out changes nothing.
        seed: the cell's seed.
    """
    uses = framework_of(model).uses
    model_settings = {key: value for key, value in to_mapping(model).items() if key in uses}
    model_settings["backbone"]["weights"] = weights_id
    if "bert" in model_settings:
        del model_settings["bert"]["weights"]  # the weights' id holds their content
    settings = {
        "numerics": NUMERICS_VERSION,
        "data_fingerprint": data_fingerprint,
        "data": _counting(to_mapping(data), _NOT_IN_CELL_ID),
        "model": model_settings,
        "objective": objective.resolved(),
        "seed": seed,
    }
    return content_id(settings)


def stage_key(cell: str, stages: Sequence[StageConfig], precision: Precision) -> str:
    """The key of a stage's result.

    Args:
        cell: the cell's id.
        stages: the settings of the stage and of those before it, in order.
        precision: the arithmetic they train in.
    """
    settings = [_counting(to_mapping(stage), _NOT_IN_STAGE_KEY) for stage in stages]
    return content_id({"cell": cell, "precision": precision, "stages": settings})


def _counting(settings: Mapping[str, Any], never: frozenset[str]) -> dict[str, Any]:
    """The settings that count."""
    return {
        key: value
        for key, value in settings.items()
        if key not in never and not (key in _ADDED_LATER and value == _ADDED_LATER[key])
    }
