"""Convert settings to plain JSON values and back, for ids, the store and archives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from goal_core.errors import ConfigError

T = TypeVar("T")


def to_mapping(value: object) -> Any:
    """Convert a dataclass and everything in it to dicts, lists, text, numbers and booleans, in field order."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_mapping(getattr(value, item.name)) for item in fields(value)}
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
    try:
        return TypeAdapter(kind).validate_json(json.dumps(mapping), strict=True)
    except ValidationError as failure:
        first = failure.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"not a valid stored {kind.__name__}: {place}: {first['msg']}") from failure
