"""The status of a training, read from its files without changing them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.checkpoints.names import LAST
from goal_sweep.runners.store.attempts import counted_failures
from goal_sweep.runners.store.training import TrainingFolder

State = Literal["waiting", "running", "done", "failed"]
"""`running`: a living process trains it. What a dead one left unfinished is `waiting`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """The status of one training."""

    state: State
    reason: str = ""
    """Why it failed, last failed, was interrupted, or must be repeated."""
    attempts: int = 0
    failures: int = 0
    """Attempts that count against `resources.max_attempts`."""
    holder: str = ""
    epochs: int = 0
    """Epochs done, while it is running, or in the saved state from which it continues, while it waits."""
    best_rsum: float = math.nan
    """Highest val/rsum of these epochs; NaN before the first."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``result.json``; empty until it is done."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The final metrics; empty until it is done."""
        metrics: Mapping[str, float] = self.result.get("metrics", {})
        return metrics


def status_of(folder: TrainingFolder, max_attempts: int) -> TrainingStatus:
    """Read the status of one training. A file that is damaged or cannot be read is named in the reason.

    Raises `UnfinishedError` where the credentials for the store have expired, so that nothing can be read.

    Args:
        max_attempts: counted failures after which a training is failed instead of waiting for another try.
    """
    problem = ""
    try:
        try:
            if (result := folder.result()) is not None:
                return TrainingStatus(state="done", result=result, attempts=result["attempt"])
        except DamagedError as error:
            problem = str(error)
        return _unfinished(folder, max_attempts, problem)
    except UnfinishedError:
        raise
    except OSError as error:
        return TrainingStatus(state="waiting", reason=str(error))


def _unfinished(folder: TrainingFolder, max_attempts: int, problem: str) -> TrainingStatus:
    attempts = folder.attempts.all()
    if not attempts:
        return TrainingStatus(state="waiting", reason=problem)
    newest, failures = attempts[-1], counted_failures(attempts)
    counts: dict[str, Any] = {"attempts": newest.n, "failures": failures}
    if folder.attempts.is_held(newest):
        return TrainingStatus(state="running", holder=newest.describe(), **_so_far(folder), **counts)
    if (newest.outcome == "failed" and newest.final) or (newest.outcome != "running" and failures >= max_attempts):
        reason = next((attempt.reason for attempt in reversed(attempts) if attempt.outcome == "failed"), "")
        return TrainingStatus(state="failed", reason=problem or reason, **counts)
    reason = "its process ended unexpectedly" if newest.outcome == "running" else newest.reason
    saved = _so_far(folder) if folder.storage.written(folder.folder / LAST) is not None else {}
    return TrainingStatus(state="waiting", reason=problem or reason, **saved, **counts)


def _so_far(folder: TrainingFolder) -> dict[str, Any]:
    rsums: list[float] = []
    with contextlib.suppress(DamagedError):  # the trainer will find it and repeat what it must
        rsums = [record["metrics"].get("val/rsum", -math.inf) for record in folder.records()]
    return {"epochs": len(rsums), "best_rsum": max(rsums, default=math.nan)}
