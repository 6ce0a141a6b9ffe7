"""What a result and an epoch's record state. Both are checked when they are read, so nobody has to ask again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.files import parse_json
from goal_sweep.goal_core.checkpoints.names import BEST, RANKS, best_name

RESULT = "result.json"
METRICS = "metrics.jsonl"


def parse_result(content: bytes, source: str) -> dict[str, Any]:
    """Parse a ``result.json``; a `DamagedError` where it is not the result of a finished training.

    The names of files are checked, because a store may come from anybody.
    """
    result = _parsed(content, source, ("epochs", "best_epoch", "attempt", "seconds", "finished", "files"))
    names = {BEST: best_name(result["best_epoch"]), METRICS: METRICS, RANKS: RANKS}
    files = result["files"] if isinstance(result["files"], dict) else {}
    for key, stated in {BEST: None, **files}.items():
        if not isinstance(stated, dict) or stated.get("name") != names.get(key, "") or "sha256" not in stated:
            raise DamagedError(f"{source} is damaged: its files have {stated!r:.80} as {key!r:.80}")
    return result


def parse_epoch(content: bytes, source: str) -> dict[str, Any]:
    """Parse a line of ``metrics.jsonl``; a `DamagedError` where it is not an epoch's record."""
    return _parsed(content, source, ("epoch", "time"))


def _parsed(content: bytes, source: str, names: Sequence[str]) -> dict[str, Any]:
    """What is stated; numbers that JSON lacks, which stand there as text, become floats."""
    stated = parse_json(content, source)
    try:
        metrics = {str(name): float(value) for name, value in stated["metrics"].items()}
        return {**stated, **{name: stated[name] for name in names}, "metrics": metrics}
    except (KeyError, AttributeError, TypeError, ValueError) as error:
        raise DamagedError(f"{source} is damaged: {type(error).__name__}: {error}") from error
