"""What a result may state. It is checked whenever a result is read, so nobody who reads one has to ask again.

A result without one of these fields, or with a value of another kind, is damaged, or somebody made it up.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from goal_core.basics.atomic import DamagedError
from goal_core.basics.sealed_json import parse_json
from goal_core.checkpoints import BEST, TRIPLETS

RESULT = "result.json"
METRICS = "metrics.jsonl"
_NOT_FINITE = ("nan", "inf", "-inf")
"""How JSON files of the store write numbers that JSON lacks."""
_MAX_TIME = 2**33
"""Seconds since 1970: the year 2242."""
_MAX_COUNT = 10**6
_MAX_BYTES = 2**63
_ATTEMPT = r"\.[1-9][0-9]{0,5}"


def parse_result(content: bytes, source: str) -> dict[str, Any]:
    """Parse and check a ``result.json``.

    Args:
        content: the file.
        source: where it comes from, for messages.

    Returns:
        The result, with finite or non-finite floats as metrics.

    Raises:
        DamagedError: it is not a result of a finished training.
    """
    result = parse_json(content, source)
    for problem in _problems(result):
        raise DamagedError(f"{source} is damaged: it {problem}")
    return {**result, "metrics": {key: float(value) for key, value in result["metrics"].items()}}


def _problems(result: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong, as in "must have seconds from 0". Those after the first may be wrong themselves."""
    if result.get("status") != "done":
        yield "is not the result of a finished training"
    if not is_metrics(result.get("metrics")):
        yield "must have metrics, which are numbers by name"
    if not is_count(result.get("epochs")):
        yield "must have epochs from 1"
    elif not is_count(result.get("best_epoch"), result["epochs"]):
        yield "must have best_epoch from 1 to its epochs"
    if not is_count(result.get("attempt")):
        yield "must have an attempt from 1"
    for name in ("seconds", "finished"):
        if not is_time(result.get(name)):
            yield f"must have {name} from 0, in seconds"
    if not isinstance(result.get("imported", ""), str):
        yield "must name the archive that it was imported from"
    yield from _file_problems(result.get("files"), result.get("best_epoch"))


def _file_problems(files: Any, best_epoch: Any) -> Iterator[str]:
    """Compare what a result states of its files with what the store writes: `BEST` always, and the records."""
    if not isinstance(files, dict) or BEST not in files:
        yield "does not state the files of its training"
        return
    names = {
        BEST: rf"best-{best_epoch}{_ATTEMPT}\.safetensors",
        METRICS: rf"metrics{_ATTEMPT}\.jsonl",
        TRIPLETS: rf"triplets{_ATTEMPT}\.npz",
    }
    for key, stated in files.items():
        if key not in names:
            yield f"states a file that no training writes: {key[:80]!r}"
        elif not isinstance(stated, dict) or stated.keys() != {"name", "bytes", "sha256", "modified_ns"}:
            yield f"must state the name, the size, the digest and the time of {key}, and nothing else"
        elif not _matches(names[key], stated["name"]):
            yield f"states as {key} a file that its training does not write: {str(stated['name'])[:80]!r}"
        elif not _matches(r"[0-9a-f]{64}", stated["sha256"]):
            yield f"must state the SHA-256 of {key} in hex"
        elif not (_is_size(stated["bytes"]) and _is_size(stated["modified_ns"])):
            yield f"must state the size and the time of {key} as whole numbers from 0"


def _matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_BYTES


def is_metrics(value: Any) -> bool:
    """Whether a JSON value is what the store writes as metrics: numbers, or names of ones that are not finite."""
    return isinstance(value, dict) and all(map(_is_name, value)) and all(map(is_metric, value.values()))


@functools.lru_cache(4096)  # epochs have the same names
def _is_name(value: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_./-]{1,200}", value) is not None


def is_metric(value: Any) -> bool:
    """Whether a JSON value is what the store writes for a metric."""
    return value in _NOT_FINITE if isinstance(value, str) else _is_number(value)


def is_count(value: Any, most: int = _MAX_COUNT) -> bool:
    """Whether a JSON value is a whole number from 1 to ``most``."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def is_time(value: Any) -> bool:
    """Whether a JSON value is a number of seconds, from 0 or since 1970."""
    return _is_number(value) and 0 <= value <= _MAX_TIME


def _is_number(value: Any) -> bool:
    if type(value) is float:
        return abs(value) < 1e308
    # A whole number of hundreds of digits is valid JSON, but no float.
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e308
