"""The status of a training, read from its files without changing them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import UnfinishedError
from goal_sweep.goal_core.checkpoints import LAST
from goal_sweep.runners.store.leases.heartbeat import DriverState
from goal_sweep.runners.store.records.attempts import charged_failures
from goal_sweep.runners.store.trainings.folder import TrainingFolder

State = Literal["waiting", "running", "done", "failed"]
"""State of a training. `running`: a living driver works on it. What a dead driver left unfinished is `waiting`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """The status of one training."""

    state: State
    reason: str = ""
    """Why it failed, last failed, was interrupted, or must be repeated."""
    damaged: bool = False
    """Whether it has a result with a damaged file, named in `reason`, so that it must be trained again."""
    unreadable: bool = False
    """Whether a file of it could not be read, as `reason` says, so that nothing is known of it."""
    attempts: int = 0
    charged: int = 0
    """Attempts that count against `max_attempts`."""
    holder: str = ""
    """The driver that works on it, while it is running."""
    epochs: int = 0
    """Epochs done, while it is running, and epochs in the saved state from which it continues, while it waits; those
    included that it continues."""
    best_rsum: float = math.nan
    """Highest val/rsum of these epochs; NaN before the first."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The content of ``result.json``; empty until it is done."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """The final metrics; empty until it is done."""
        metrics: Mapping[str, float] = self.result.get("metrics", {})
        return metrics

    @property
    def imported(self) -> str:
        """The archive that the result came from; empty if it was trained here."""
        return str(self.result.get("imported", ""))


def status_of(
    folder: TrainingFolder, driver_of: Callable[[str], DriverState | None], max_attempts: int, *, thorough: bool = False
) -> TrainingStatus:
    """Read the status of one training. A file that is damaged or cannot be read is named in the status.

    Args:
        folder: the training's folder.
        driver_of: the state of a launch's driver; None if it has ended.
        max_attempts: number of charged failures after which a training is failed instead of waiting for another try.
        thorough: verify every file of finished trainings, also those that have not changed since they were written.

    Raises:
        UnfinishedError: the credentials for the store have expired, so that nothing can be read.
    """
    problem, damaged, unreadable = "", False, False
    try:
        result = folder.result()
        if result is not None:
            attempts = result["attempt"]
            if damage := folder.damage(result, thorough=thorough):
                return TrainingStatus(state="waiting", reason=damage, damaged=True, attempts=attempts)
            return TrainingStatus(state="done", result=result, attempts=attempts)
    except UnfinishedError:
        raise
    except (DamagedError, StorageError) as error:
        problem, damaged = str(error), isinstance(error, DamagedError)
        unreadable = not damaged
    try:
        unfinished = _unfinished(folder, driver_of, max_attempts, problem)
        return replace(unfinished, damaged=damaged, unreadable=unreadable)
    except (DamagedError, OSError) as error:
        unreadable |= isinstance(error, OSError)
        reason = problem or str(error)
        return TrainingStatus(state="waiting", reason=reason, damaged=damaged, unreadable=unreadable)


def _unfinished(
    folder: TrainingFolder, driver_of: Callable[[str], DriverState | None], max_attempts: int, problem: str
) -> TrainingStatus:
    attempts = folder.attempts.all()
    if not attempts:
        return TrainingStatus(state="waiting", reason=problem)
    newest, charged = attempts[-1], charged_failures(attempts)
    counts: dict[str, Any] = {"attempts": newest.n, "charged": charged}
    if newest.outcome == "running":
        driver = driver_of(newest.launch_id)
        if driver is not None and driver.alive:
            holder = driver.describe()
            return TrainingStatus(state="running", holder=holder, reason=problem, **_so_far(folder), **counts)
        reason = problem or "its launch ended unexpectedly"
        return TrainingStatus(state="waiting", reason=reason, **_saved(folder), **counts)
    if (newest.outcome == "failed" and newest.final) or charged >= max_attempts:
        reason = next((attempt.reason for attempt in reversed(attempts) if attempt.outcome == "failed"), "")
        return TrainingStatus(state="failed", reason=problem or reason, **counts)
    return TrainingStatus(state="waiting", reason=problem or newest.reason, **_saved(folder), **counts)


def _saved(folder: TrainingFolder) -> dict[str, Any]:
    """What a training that waits continues from: nothing without a saved state."""
    return _so_far(folder) if folder.places(LAST) else {}


def _so_far(folder: TrainingFolder) -> dict[str, Any]:
    rsums: list[float] = []
    with contextlib.suppress(DamagedError):  # the worker will find it and repeat what it must
        rsums = [record["metrics"].get("val/rsum", -math.inf) for record in folder.records({})]
    return {"epochs": len(rsums), "best_rsum": max(rsums, default=math.nan)}
