"""Makes tracking say what the store says, and changes nothing where it does already.

There is one way for a number into MLflow, and this is it. While a sweep trains, each sign of life of a training has its
run compared with the store; a relaunch and `goal-sweep sync` do the same for every training. So it does not matter what
was lost, or when.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from goal_core.errors import GoalError
from goal_core.training.triplet_histogram import TRIPLETS
from runners.store import METRICS, Attempt, Store, TrainingFolder, TrainingStatus, digest
from runners.store.provenance import gather
from runners.tracking import schema as names
from runners.tracking.client import Outcome, Tracking
from runners.tracking.edits import describe_code, describe_edits
from runners.tracking.queue import one_line
from runners.tracking.runs import Point, RunWriter
from runners.tracking.uri import resolve_uri
from sweeps import ResolvedSweep, Training

_log = logging.getLogger(__name__)


class SweepTracking:
    """Keeps the MLflow runs of a sweep as the store has them. Use as a context manager.

    Args:
        sweep: the sweep.
        store: the truth; only read.
        live: whether this process trains; the parent run then shows as running until the end.
        thorough: also look for artifacts that somebody deleted.
        warn: told in one line of trouble and of its end, on another thread.
        closing_s: seconds that the end of the block may take to write what is left.

    Raises:
        TrackingError: the sweep's tracking URI is not one that can work.
    """

    def __init__(
        self,
        sweep: ResolvedSweep,
        store: Store,
        *,
        live: bool = True,
        thorough: bool = False,
        warn: Callable[[str], None] = _log.warning,
        closing_s: float = 60.0,
    ) -> None:
        self._sweep, self._store, self._thorough, self._closing_s = sweep, store, thorough, closing_s
        self._max_attempts = sweep.config.resources.max_attempts
        self._refused = ""
        self._queued: set[Training] = set()
        self._behind: set[Training] = set()
        uri = resolve_uri(sweep.config.tracking, store.root)
        # Before anything is trained or written, the store tells whether there is anything to train.
        self.tracking = Tracking(uri, sweep, live=live and self._outcome() != "done", warn=warn)

    def sync(self, training: Training) -> None:
        """Bring a training's run up to date. Returns at once; repeating it is cheap."""
        self._behind.add(training)
        if training not in self._queued:
            self._queued.add(training)
            self.tracking.update(partial(self._reconcile, training))

    def sync_all(self, *, wait: float = 0.0) -> bool:
        """Bring every run up to date, and the parent run's status.

        Args:
            wait: seconds to wait for it; 0 returns at once.

        Returns:
            Whether everything is up to date by now.
        """
        self.tracking.update(self._end_abandoned)
        for training in self._sweep.trainings:
            self.sync(training)
        if wait:
            self.tracking.flush(wait)
        return not self._behind

    def tell_of_edits(self, tell: Callable[[str], None]) -> None:
        """Tell, a line each, what was edited since earlier launches; call before anything is brought up to date.

        Args:
            tell: called on another thread.
        """

        def look(runs: RunWriter) -> None:
            trainings = self._sweep.trainings
            lines = describe_edits(trainings, runs.runs)
            lines.append(describe_code(trainings, runs.runs, short_digest(gather().git_diff_sha256)))
            for line in filter(None, lines):
                tell(line)

        self.tracking.update(look)

    @property
    def trouble(self) -> str:
        """What is not up to date, and why, in one line; empty when nothing is. Ask after `sync_all` has waited."""
        if not self._behind:
            return ""
        why = self.tracking.warnings[-1] if self.tracking.warnings else "MLflow is slow to answer"
        return f"{len(self._behind)} of {len(self._sweep.trainings)} runs are not up to date: {why}"

    def close(self) -> None:
        """Write what is left, say how the sweep stands, and let go."""
        try:
            outcome = self._outcome()
        except GoalError:
            outcome = "interrupted"
        self.tracking.close(outcome, self._closing_s)

    def __enter__(self) -> SweepTracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _outcome(self) -> Outcome:
        statuses = self._store.status(self._sweep.trainings, max_attempts=self._max_attempts)
        states = {status.state for status in statuses.values()}
        if states <= {"done"}:
            return "done"
        return "interrupted" if states & {"waiting", "running"} else "failed"

    def _reconcile(self, training: Training, runs: RunWriter) -> None:
        self._queued.discard(training)
        status = self._store.status([training], max_attempts=self._max_attempts)[training]
        folder = self._store.folder(training)
        reconcile(runs, training, folder, status)
        if status.state != "running":
            self._attach_triplets(runs, training, folder)
        if training not in self._queued:
            self._behind.discard(training)

    def _attach_triplets(self, runs: RunWriter, training: Training, folder: TrainingFolder) -> None:
        """Give the run its triplet record, if there is one and the run lacks it.

        An artifact store that refuses must not keep numbers out of MLflow: it is told of once, and the rest goes on.
        """
        path, state = folder.path(TRIPLETS), runs.state(training)
        settled = state == names.DONE and runs.has_triplets(training, look=self._thorough)
        if settled or not state or not path.is_file():
            return
        try:
            sha256 = digest(path)
            if not runs.has_triplets(training, sha256, look=self._thorough):
                runs.attach_triplets(training, path, sha256)
        except Exception as error:
            if not self._refused:
                self.tracking.tell(f"triplet records are not attached to their runs: {one_line(error)}")
            self._refused = one_line(error)

    def _end_abandoned(self, runs: RunWriter) -> None:
        """End runs that still show as running though the sweep no longer asks for them and nobody trains them."""
        asked = {training.key for training in self._sweep.trainings}
        for key, (cell_id, stage) in runs.running().items():
            folder = self._store.folder_of(cell_id, stage, key)
            if key not in asked and folder.folder.is_dir() and not self._store.is_running(folder):
                runs.end_abandoned(key)


def reconcile(runs: RunWriter, training: Training, folder: TrainingFolder, status: TrainingStatus) -> None:
    """Make a training's run say what the store says.

    Args:
        runs: the sweep's runs.
        training: the training.
        folder: its folder in the store.
        status: how it stands there.
    """
    if status.state == "done":
        test = _test_metrics(status.result)
        if runs.contradicts(training, test):
            runs.discard(training)
        elif runs.is_settled(training, {*(key for key in test if math.isfinite(test[key])), names.SELECTED_RSUM}):
            return
        points = _epoch_points(folder)
        points.append(_final_point(status.result, test, points))
    else:
        if runs.state(training) == names.DONE:
            runs.discard(training)  # the store lost the result that these numbers belong to
        if not status.attempts and not runs.state(training):
            return  # not begun; the parent run says what is asked for
        points = _epoch_points(folder)
    attempts = folder.attempts.all()
    runs.ensure(training, attempts[0].started if attempts else time.time())
    runs.log(training, points)
    ended = attempts[-1].ended if attempts and status.state != "done" else None
    runs.set_state(
        training,
        status.state,
        reason=status.reason,
        ended=points[-1].time if ended is None and points else ended,
        code=_code_tags(attempts[-1]) if attempts else None,
    )


def _code_tags(attempt: Attempt) -> dict[str, str]:
    modified = {names.GIT_DIFF: short_digest(attempt.git_diff_sha256)} if attempt.git_diff_sha256 else {}
    return {names.GIT_COMMIT: attempt.git_commit, **modified}


def short_digest(sha256: str) -> str:
    """As much of a digest as people compare."""
    return sha256[:12]


def _epoch_points(folder: TrainingFolder) -> list[Point]:
    """The store's epochs; those without a time of their own have the file's."""
    try:
        records = folder.records()
        written = folder.path(METRICS).stat().st_mtime if records else 0.0
    except (GoalError, OSError):
        return []  # damaged: `status` names it, and what is already tracked stays
    return [Point(record["epoch"], record["metrics"], float(record.get("time", written))) for record in records]


def _test_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in result["metrics"].items() if key.startswith(names.TEST_PREFIX)}


def _final_point(result: Mapping[str, Any], test: Mapping[str, float], epochs: list[Point]) -> Point:
    """A result's metrics on the test split, and those that the selected epoch had on val."""
    best = int(result["best_epoch"])
    of_best = next((point.metrics for point in epochs if point.step == best), {})
    val = {key.removeprefix(names.VAL_PREFIX): of_best[key] for key in of_best if key.startswith(names.VAL_PREFIX)}
    selected = {f"{names.SELECTED_PREFIX}{name}": value for name, value in val.items()}
    return Point(best, {**test, **selected}, float(result.get("finished", time.time())))
