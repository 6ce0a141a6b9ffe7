"""Which settings identify a trained model, and the hashes of these settings.

The lists below are the only ones: cell ids, stage keys, and the parameters and settings keys in MLflow follow them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from goal_core.basics.errors import ConfigError
from goal_core.basics.numerics import NUMERICS_VERSION
from goal_core.data.config import DataConfig
from goal_core.models.config import ModelConfig
from goal_core.models.frameworks import framework_of
from goal_core.objectives import ObjectiveConfig
from goal_core.training.config import Precision, StageConfig

T = TypeVar("T")
UNLESS_EMPTY = "unless_empty"
"""A field with this in its metadata is written only where it is not empty."""
NO_KEY = "no_key"
"""A field with this in its metadata has no key in a sweep file."""
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
"""The reader of each class read so far: to build one takes longer than to read a hundred mappings with it."""

_NOT_OF_THE_DATA = frozenset(
    {
        # A name, and where the files are.
        *("format", "name", "root", "annotations", "test_file", "train_files", "val_file", "image_root"),
        # The fingerprint hashes the drawn scenes themselves.
        *("num_train", "num_val", "num_test", "data_seed"),
    }
)
"""Data settings that are not hashed, because the data fingerprint covers what they select. All others count."""

_NOT_OF_THE_STAGE = frozenset(
    {
        *("checkpoint_every", "collapse_patience", "sharing", "cells_per_unit", "units_per_gpu"),
        *("recompute", "micro_batch"),
    }
)
"""Stage settings that are not hashed. Most say when to save, when to give up and what to compute twice, and cannot
change a result. `micro_batch`, and `sharing` and `cells_per_unit` where heads are stacked, change only the order of
additions, like the number of threads and the device, which do not count either; and `micro_batch` falls by itself when
memory runs out, which must not make another model of a cell."""

_NEUTRAL = {
    **{"bert_lr_scale": 1.0, "backbone_lr_scale": 1.0, "frozen_epochs": 0, "ramp_epochs": 0},
    **{"beta2": 0.999, "schedule": "drops", "lr_warmup": 0.0},
    **{"select_on": "val", "bn_mode": "frozen_eval", "vocabulary": "train_val", "feature_views": 0},
}
"""Settings added after the first results, each with the value at which it changes nothing. Hashes leave out a setting
that has this value, so that earlier results stay valid."""

UNTRACKED_DEFAULTS = {key: _NEUTRAL[key] for key in ("select_on", "bn_mode", "vocabulary", "feature_views")}
"""Settings that were also added after the first MLflow runs, with their neutral values. Runs do not show them at these
values, because the parameters of a run cannot change."""


def cell_id(
    *,
    data: DataConfig,
    data_fingerprint: str,
    model: ModelConfig,
    weights_id: str,
    objective: ObjectiveConfig,
    seed: int,
    tested: bool = True,
) -> str:
    """Hash everything that determines a cell's model, except how its stages train it.

    Args:
        data: the dataset; only settings that change what the model sees count.
        data_fingerprint: hash of the images and captions.
        model: framework, backbone, text encoder, embedding; paths of weights and of `init_from` do not count.
        weights_id: content id of the initial weights (`goal_core.checkpoints.initial_weights_id`).
        objective: counts with all its parameters, so writing out a default changes nothing.
        seed: the cell's seed.
        tested: whether its results have numbers of the test split; those of a candidate have not.
    """
    model_settings = _model_settings(model)
    used = {key: value for key, value in model_settings.items() if key in framework_of(model).uses}
    used["backbone"]["weights"] = weights_id
    return content_id(
        {
            "numerics": NUMERICS_VERSION,
            "data_fingerprint": data_fingerprint,
            "data": _without_neutral(_data_settings(data)),
            "model": used,
            "objective": objective.resolved(),
            "seed": seed,
            **({} if tested else {"candidate": True}),
        }
    )


def stage_key(cell: str, stages: Sequence[StageConfig], precision: Precision, until: int = 0) -> str:
    """Hash a training. The key names its result in the store.

    Args:
        cell: the cell's id.
        stages: the settings of the training's stage and of the stages before it, in order.
        precision: the arithmetic of the training steps.
        until: the epoch after which it ends, if that is not the last of its stage.
    """
    settings = [_without_neutral(_stage_settings(stage)) for stage in stages]
    ends = {"until": until} if until else {}
    return content_id({"cell": cell, "precision": precision, "stages": settings, **ends})


def tracked_settings(
    data: DataConfig, model: ModelConfig, stages: Sequence[StageConfig], precision: Precision
) -> dict[str, Any]:
    """The hashed settings in readable form: what MLflow shows of a training besides its objective.

    Args:
        data: the dataset.
        model: framework, backbone, text encoder, embedding.
        stages: the settings of the training's stage and of the stages before it, in order.
        precision: the arithmetic of the training steps.

    Returns:
        Settings by name. The data, the model and each stage have a dict of their own.
    """
    shown = {key: value for key, value in _model_settings(model).items() if key != "backbone"}
    if "xvlm" not in framework_of(model).uses:
        shown["xvlm"]["objective_scale"] = 10.0  # the default of the time when the keys of these frameworks were made
    of_stages = {stage.name: _tracked(_stage_settings(stage)) for stage in stages}
    return {
        "numerics": NUMERICS_VERSION,
        "data": _tracked(_data_settings(data)),
        "model": {**shown, "backbone": model.backbone.name},
        "precision": precision,
        "stages": {name: {k: v for k, v in stage.items() if k != "name"} for name, stage in of_stages.items()},
    }


def _data_settings(data: DataConfig) -> dict[str, Any]:
    settings = {key: value for key, value in to_mapping(data).items() if key not in _NOT_OF_THE_DATA}
    return settings | ({"image": data.image.settings} if data.image is not None else {})


def _model_settings(model: ModelConfig) -> dict[str, Any]:
    """A model's settings without the paths of its weights, because the content of the weights has its own id."""
    settings: dict[str, Any] = to_mapping(model)
    del settings["init_from"], settings["backbone"]["weights"], settings["bert"]["weights"]
    return settings


def _stage_settings(stage: StageConfig) -> dict[str, Any]:
    return {key: value for key, value in to_mapping(stage).items() if key not in _NOT_OF_THE_STAGE}


def _without_neutral(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if not _is_neutral(key, value)}


def _tracked(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if UNTRACKED_DEFAULTS.get(key) != value}


def _is_neutral(key: str, value: Any) -> bool:
    return key in _NEUTRAL and value == _NEUTRAL[key]


def content_id(value: Any) -> str:
    """The first 16 hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def canonical_json(value: Any) -> str:
    """Write equal content as equal text: keys sorted, numbers by value (`1` equals `1.0`, `1e-4` equals `0.0001`).

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


def to_mapping(value: object) -> Any:
    """Convert a dataclass and everything in it to dicts, lists, text, numbers and booleans, in field order.

    A field marked `UNLESS_EMPTY` is left out where it is empty, so that what has none is written as it always was.
    """
    if is_dataclass(value) and not isinstance(value, type):
        found = {item: getattr(value, item.name) for item in fields(value)}
        return {item.name: to_mapping(one) for item, one in found.items() if one or UNLESS_EMPTY not in item.metadata}
    if isinstance(value, Mapping):
        return {str(key): to_mapping(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_mapping(item) for item in value]
    return value


def from_mapping(kind: type[T], mapping: Mapping[str, Any]) -> T:
    """Rebuild a dataclass from the mapping that `to_mapping` made of it.

    Raises:
        ConfigError: a key is missing or unknown, or a value has the wrong type or is out of range.
    """
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    try:
        rebuilt: T = _ADAPTERS[kind].validate_json(json.dumps(mapping), strict=True)
    except ValidationError as failure:
        first = failure.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"not a valid stored {kind.__name__}: {place}: {first['msg']}") from failure
    return rebuilt
