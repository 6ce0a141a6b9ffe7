"""JSON files that carry their own checksum, so that damage shows when they are read."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, read_bytes

_CHECKSUM = "checksum"


def json_bytes(content: Any, *, indent: int | None = 2, seal: bool = True) -> bytes:
    """Strict JSON in UTF-8, with a final newline; numbers that JSON lacks become ``"nan"``, ``"inf"``, ``"-inf"``.

    Sealed, an object has a key ``"checksum"``, which :func:`parse_json` verifies and removes.
    """
    finite = _finite(content)
    if seal and isinstance(finite, dict):
        finite.pop(_CHECKSUM, None)
        finite[_CHECKSUM] = key_of(finite)
    return json.dumps(finite, indent=indent, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def key_of(content: Any) -> str:
    """16 hex digits that identify JSON-able content; the order of an object's keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _finite(content: Any) -> Any:
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    if isinstance(content, Mapping):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_finite(value) for value in content]
    return content


def read_json(path: Path, *, sealed: bool = True) -> dict[str, Any] | None:
    """The JSON object in ``path``, as by :func:`parse_json`, or None where there is no such file."""
    content = read_bytes(path)
    return None if content is None else parse_json(content, str(path), sealed=sealed)


def parse_json(content: bytes, source: str, *, sealed: bool = True) -> dict[str, Any]:
    """Parse what :func:`json_bytes` wrote; a `DamagedError` where it is not whole or does not match its checksum."""
    try:
        parsed = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{source} is damaged: it is not valid JSON ({error})") from error
    if not isinstance(parsed, dict):
        raise DamagedError(f"{source} is damaged: it is not a JSON object")
    if (sealed or _CHECKSUM in parsed) and parsed.pop(_CHECKSUM, None) != key_of(parsed):
        raise DamagedError(f"{source} is damaged: its content does not match its checksum")
    return parsed
