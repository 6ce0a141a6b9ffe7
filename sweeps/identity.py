"""Which settings make a trained model, and the ids that hash them.

Of a model and its stages all but those that are listed here; of the data their fingerprint and `_OF_THE_DATA`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import NUMERICS_VERSION
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.training.config import Precision, StageConfig

T = TypeVar("T")
reader_of: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""What reads a class from JSON: to build one takes longer than to read a hundred mappings with it."""

_OF_THE_DATA = ("min_word_count", "image")
"""Data settings that are hashed by name, too: those that mean the same in every layout. The fingerprint covers all."""
_PLACES = frozenset(
    "format name root annotations test_file train_files val_file image_root importer "
    "image_column caption_column split_column".split()
)
"""Data settings that are a name, or say where the data are: what is there counts."""
_NOT_OF_THE_MODEL = frozenset({"backbone", "init_from"})
"""Model settings that are not hashed, because the name of the backbone and the content of all weights are."""
_NOT_OF_THE_STAGE = frozenset({"name", "checkpoint_every", "collapse_patience", "micro_batch"})
"""Stage settings that are not hashed: they cannot change a result, `micro_batch` only by the order of additions, like
the number of threads; and it falls by itself when memory runs out, which must not make another model of a cell."""


def is_in_id(key: str) -> bool:
    """Whether another value of a key of a sweep file, such as `stages.lr` or `data.root`, is another model."""
    section, setting = key.partition(".")[0], key.split(".")[1 if key.startswith("model.") else -1]
    left_out = {"data": _PLACES, "model": _NOT_OF_THE_MODEL, "stages": _NOT_OF_THE_STAGE}
    if section in left_out:
        return setting not in left_out[section] - {"init_from"}  # of which the content counts
    return section in ("objectives", "seeds", "precision")


def cell_settings(cell: Any) -> dict[str, Any]:
    """Everything that determines the model of a `Cell`, except how its stages train it.

    Parts that the framework does not use are left out; the objective has all its parameters, also those by default.
    """
    used = framework_of(cell.model).uses - _NOT_OF_THE_MODEL
    model: dict[str, Any] = {key: value for key, value in to_mapping(cell.model).items() if key in used}
    for part, setting in (("bert", "weights"), ("text", "encoder")):
        model.get(part, {}).pop(setting, None)  # by its content in `weights_id`
    return {
        "numerics": NUMERICS_VERSION,
        "data_fingerprint": cell.data_fingerprint,
        "data": {key: value for key, value in to_mapping(cell.data).items() if key in _OF_THE_DATA},
        "model": {**model, "backbone": cell.model.backbone.name, "backbone_weights": cell.weights_id},
        "objective": cell.objective.resolved(),
        "seed": cell.seed,
        "tested": cell.tested,
    }


def stage_settings(stages: Sequence[StageConfig], precision: Precision) -> dict[str, Any]:
    """Everything that determines how a model is trained: its stage's settings and those of the stages before it."""
    of_stages = {
        str(stage.name): {key: value for key, value in to_mapping(stage).items() if key not in _NOT_OF_THE_STAGE}
        for stage in stages
    }
    return {"precision": precision, "stages": of_stages}


def stage_key(cell: str, stages: Sequence[StageConfig], precision: Precision) -> str:
    """The key of a training, which names its result in the store; `cell` is the cell's id."""
    return content_id({"cell": cell, **stage_settings(stages, precision)})


def flat_text(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by dotted name, such as `stages.frozen.lr`, each as text; equal values are equal text."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_text(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(_by_value(value))


def content_id(value: Any) -> str:
    """The first 16 hex digits of the SHA-256 of canonical JSON: keys sorted, numbers by value (`1` equals `1.0`).

    A NaN is a `ValueError`.
    """
    text = json.dumps(_by_value(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _by_value(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _by_value(item) for key, item in value.items()}
    return [_by_value(item) for item in value] if isinstance(value, (list, tuple)) else value


def to_mapping(value: object) -> Any:
    """A dataclass and everything in it as dicts, lists, text, numbers and booleans, in field order."""
    return to_jsonable_python(value)


def from_mapping(kind: type[T], mapping: Mapping[str, Any]) -> T:
    """Rebuild a dataclass from what `to_mapping` made of it; a `ConfigError` says what is wrong with that."""
    try:
        rebuilt: T = reader_of(kind).validate_json(json.dumps(mapping), strict=True)
    except ValidationError as failure:
        first = failure.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"not a valid stored {kind.__name__}: {place}: {first['msg']}") from failure
    return rebuilt
