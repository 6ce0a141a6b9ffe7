"""What a result and an epoch's record may state. It is checked whenever one is read, so nobody has to ask again.

One without one of these fields, or with a value of another kind, is damaged, or somebody made it up.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.sealed_json import parse_json
from goal_sweep.goal_core.checkpoints.names import BEST, RANKS, best_name

RESULT = "result.json"
METRICS = "metrics.jsonl"
_STRICT, _OPEN = ConfigDict(strict=True, extra="forbid"), ConfigDict(strict=True, extra="allow")

Count = Annotated[int, Field(strict=True, ge=1, le=10**6)]
"""A whole number from 1."""
Seconds = Annotated[float, Field(strict=True, ge=0, le=2**33)]
"""Seconds, also since 1970, where they end in the year 2242."""
_Number = Annotated[float, Field(gt=-1e308, lt=1e308)]
_NotFinite = Annotated[Literal["nan", "inf", "-inf"], AfterValidator(float)]
"""How JSON files of the store write numbers that JSON lacks."""
Metrics = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]{1,200}$")], _Number | _NotFinite]


class _Stated(TypedDict):
    """What a result states of a file."""

    __pydantic_config__ = _STRICT  # type: ignore[misc]  # pydantic reads it from a TypedDict
    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


_Record = NotRequired[_Stated]
_Files = TypedDict("_Files", {BEST: _Stated, METRICS: _Record, RANKS: _Record})  # type: ignore[misc]
_Files.__pydantic_config__ = _STRICT  # type: ignore[attr-defined]


class _Result(TypedDict):
    __pydantic_config__ = _OPEN  # type: ignore[misc]
    status: Literal["done"]
    metrics: Metrics
    epochs: Count
    best_epoch: Count
    attempt: Count
    seconds: Seconds
    finished: Seconds
    files: _Files


class _Epoch(TypedDict):
    __pydantic_config__ = _OPEN  # type: ignore[misc]
    epoch: Count
    time: Seconds
    metrics: Metrics


_RESULT, _EPOCH = TypeAdapter(_Result), TypeAdapter(_Epoch)


def parse_result(content: bytes, source: str) -> dict[str, Any]:
    """Parse and check a ``result.json``. Raises `DamagedError` where it is not a result of a finished training.

    Args:
        source: where it comes from, for messages.

    Returns:
        The result, with finite or non-finite floats as metrics.
    """
    result = _checked(_RESULT, content, source)
    best = result["best_epoch"]
    if best > result["epochs"]:
        raise DamagedError(f"{source} is damaged: its best_epoch {best} is after its {result['epochs']} epochs")
    names = {BEST: best_name(best), METRICS: METRICS, RANKS: RANKS}
    for key, stated in result["files"].items():
        if stated["name"] != names[key]:
            raise DamagedError(f"{source} is damaged: its files have {stated['name'][:80]!r} as {key}")
    return result


def parse_epoch(content: bytes, source: str) -> dict[str, Any]:
    """Parse and check a line of ``metrics.jsonl``, as `parse_result` does a result.

    Raises `DamagedError` where it is not an epoch's record.
    """
    return _checked(_EPOCH, content, source)


def _checked(kind: TypeAdapter[Any], content: bytes, source: str) -> dict[str, Any]:
    try:
        checked: dict[str, Any] = kind.validate_python(parse_json(content, source))
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))[:200]
        raise DamagedError(f"{source} is damaged: {place!r}: {first['msg']}") from failure
    return checked
