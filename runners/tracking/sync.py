"""Bring MLflow up to date with the store, changing only what differs.

Every number enters MLflow through this module. While a sweep trains, each event of a training triggers a comparison of
its run with the store. A relaunch and `goal-sweep sync` compare every training, so it does not matter what was lost.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import TracebackType
from typing import Any

from goal_core.basics.errors import GoalError
from goal_core.checkpoints import TRIPLETS
from goal_core.training import below_warmup, weak_objective
from runners.store import BEST, Attempt, Store, TrainingFolder, TrainingStatus, digest
from runners.store.records.provenance import gather
from runners.tracking import schema as names
from runners.tracking.client import Outcome, Tracking
from runners.tracking.edits import describe_code, describe_edits
from runners.tracking.queue import one_line
from runners.tracking.runs import Point, RunWriter
from runners.tracking.uri import TrackingError, resolve_uri
from runners.tracking.values import training_path
from sweeps import ResolvedSweep, Training

_log = logging.getLogger(__name__)
AFTER_ERROR_S = 5.0
"""Seconds that the end of the block may take if an error ends it."""


class SweepTracking:
    """Keeps the MLflow runs of a sweep equal to the store. A context manager.

    Args:
        sweep: the sweep.
        store: the store, which is only read.
        live: whether this process will train, so that the parent run shows as running until the end.
        thorough: also check for artifacts that somebody deleted.
        warn: receives one line when trouble begins and one when it ends, on another thread.
        closing_s: seconds that the end of the block may take to write what is left.

    Raises:
        TrackingError: the sweep's tracking URI is not supported.
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
        self._deadline = math.inf
        self._max_attempts = sweep.config.resources.max_attempts
        self._refused = ""
        self._queued: set[Training] = set()
        self._behind: set[Training] = set()
        uri = resolve_uri(sweep.config.tracking, store.root)
        self.tracking = Tracking(uri, sweep, live=live, warn=warn)

    def sync(self, training: Training) -> None:
        """Bring a training's run up to date. Returns at once; repeated calls are cheap."""
        self._behind.add(training)
        if training not in self._queued:
            self._queued.add(training)
            self.tracking.update(partial(self._reconcile, training))

    def sync_all(self, *, wait: float = 0.0, patient: bool = True) -> bool:
        """Bring every run up to date, and end the runs that nobody trains any more.

        Args:
            wait: seconds to wait for it; 0 returns at once.
            patient: wait also while MLflow is down.

        Returns:
            Whether everything is up to date now.
        """
        self.tracking.update(self._end_abandoned)
        self.tracking.update(self._attach_trail)
        for training in self._sweep.trainings:
            self.sync(training)
        if wait:
            self.tracking.flush(min(wait, self._left()), patient=patient)
        return not self._behind

    def limit(self, seconds: float) -> None:
        """Let all further waiting, including the end of the block, take this many seconds at most."""
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def tell_of_edits(self, todo: Collection[Training], tell: Callable[[str], None]) -> None:
        """Report what was edited since earlier launches. Call this before any run is brought up to date.

        Args:
            todo: the trainings that this launch will train.
            tell: receives each line, on another thread.
        """

        def look(runs: RunWriter) -> None:
            lines = describe_edits(self._sweep.trainings, todo, runs.runs)
            lines.append(describe_code(self._sweep.trainings, runs.runs, short_digest(gather().git_diff_sha256)))
            for line in filter(None, lines):
                tell(line)

        self.tracking.update(look)

    def refuse_other_numbers(self, results: Mapping[Training, Mapping[str, float]], *, wait: float) -> None:
        """Check that MLflow answers, and that none of its finished runs has other numbers than these.

        Args:
            results: final metrics of trainings that the store is about to take from elsewhere.
            wait: seconds that MLflow may take.

        Raises:
            TrackingError: MLflow does not answer, refuses, or has other numbers.
        """
        found: list[str] = []

        def look(runs: RunWriter) -> None:
            # A run that was itself imported is no better than the archive.
            done = (one for one in results if runs.state(one) == names.DONE and not runs.imported_from(one))
            found[:] = [one.name for one in done if runs.contradicts(one, results[one])]

        if not self.tracking.wait_open(wait) or not self._ask(look, wait):
            why = self.tracking.warnings[-1] if self.tracking.warnings else "it is slow to answer"
            raise TrackingError(f"MLflow cannot be used, so nothing is imported: {why}")
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            raise TrackingError(
                f"MLflow has other numbers than the archive, so nothing is imported: {', '.join(found[:3])}{more}"
            )

    def _ask(self, look: Callable[[RunWriter], None], wait: float) -> bool:
        self.tracking.update(look)
        return self.tracking.flush(wait)

    @property
    def trouble(self) -> str:
        """What is not up to date, and why, in one line; empty if all is. Read it after `sync_all` has waited."""
        if not self._behind:
            return ""
        return f"{len(self._behind)} of {len(self._sweep.trainings)} runs are not up to date: {self.tracking.why_late}"

    def close(self) -> None:
        """Write what is left, set the parent run's status, and stop."""
        try:
            outcome = self._outcome()
        except GoalError:
            outcome = "interrupted"
        self.tracking.close(outcome, min(self._closing_s, self._left()))

    def __enter__(self) -> SweepTracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.limit(AFTER_ERROR_S)
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
        """Attach the triplet record to the run, if there is one and the run lacks it.

        A failing artifact store must not keep numbers out of MLflow, so the failure is only reported, and only once.
        """
        state = runs.state(training)
        if not state or (state == names.DONE and runs.has_triplets(training, look=self._thorough)):
            return
        try:
            path = folder.path(TRIPLETS)
            if not path.is_file():
                return
            sha256 = digest(path)
            if not runs.has_triplets(training, sha256, look=self._thorough):
                runs.attach_triplets(training, path, sha256)
        except Exception as error:
            if not self._refused:
                self.tracking.tell(f"triplet records are not attached to their runs: {one_line(error)}")
            self._refused = one_line(error)

    def _attach_trail(self, runs: RunWriter) -> None:
        """Attach what the sweep's search tried and chose, once it is over; and mark what it does not choose any more.

        A failing artifact store must not keep numbers out of MLflow, so the failure is only reported.
        """
        runs.leave_grids(self._sweep.trainings)
        trail = self._store.read_trail(self._sweep.config.name) if self._sweep.has_chosen else None
        if trail is None:
            return
        try:
            runs.attach_trail(trail, look=self._thorough)
        except Exception as error:
            self.tracking.tell(f"{names.TRAIL_FILE} is not attached to the sweep's run: {one_line(error)}")

    def _end_abandoned(self, runs: RunWriter) -> None:
        """End runs that show as running although they are no longer in the sweep and no driver trains them."""
        asked = {training.key for training in self._sweep.trainings}
        for key, (cell_id, stage) in runs.running().items():
            folder = self._store.folder_of(cell_id, stage, key)
            if key not in asked and folder.storage.exists(folder.folder) and not self._store.is_running(folder):
                runs.end_abandoned(key)


def reconcile(runs: RunWriter, training: Training, folder: TrainingFolder, status: TrainingStatus) -> None:
    """Make a training's run agree with the store.

    Args:
        runs: the sweep's runs.
        training: the training.
        folder: its folder in the store.
        status: its status in the store.
    """
    checkpoint = ""
    if status.state == "done":
        checkpoint = _checkpoint(training, folder, status.result)
        test = _test_metrics(status.result)
        if runs.contradicts(training, test):
            runs.discard(training)
        final = {*(key for key in test if math.isfinite(test[key])), names.SELECTED_RSUM}
        if runs.is_settled(training, final, imported=status.imported, checkpoint=checkpoint):
            return
        points = _epoch_points(folder)
        points.append(_final_point(status.result, test, points))
    else:
        if runs.state(training) == names.DONE:
            runs.discard(training)  # the store lost the result that these numbers belong to
        if not status.attempts and not runs.state(training):
            return  # not begun, so it has no run; the parent run lists what the sweep asks for
        points = _epoch_points(folder)
    attempts = folder.attempts.all()
    tags = _code_tags(attempts[-1]) if attempts else {}
    if status.state == "done":
        tags |= _flaw_tags(training, folder, int(status.result["best_epoch"]))
        tags |= {names.STACKED: f"{status.result['stacked']:.4g}"} if "stacked" in status.result else {}
    runs.ensure(training, attempts[0].started if attempts else time.time(), _owner(folder))
    runs.log(training, points)
    ended = attempts[-1].ended if attempts and status.state != "done" else None
    runs.set_state(
        training,
        status.state,
        reason=status.reason,
        ended=points[-1].time if ended is None and points else ended,
        tags=tags,
        imported=status.imported,
        checkpoint=checkpoint,
    )


def _checkpoint(training: Training, folder: TrainingFolder, result: Mapping[str, Any]) -> str:
    """The path of a finished training's weights in the results folder; empty if it has none, as after an import."""
    name = result.get("files", {}).get(BEST, {}).get("name", BEST)
    return f"{training_path(training)}/{name}" if folder.storage.exists(folder.folder / name) else ""


def _owner(folder: TrainingFolder) -> str:
    """Who trained: the owner of the training's folder, by number where this machine does not know the name."""
    try:
        return folder.folder.owner()
    except KeyError:
        return str(folder.folder.stat().st_uid)
    except OSError:
        return ""


def _code_tags(attempt: Attempt) -> dict[str, str]:
    modified = {names.GIT_DIFF: short_digest(attempt.git_diff_sha256)} if attempt.git_diff_sha256 else {}
    commit = {names.SOURCE_COMMIT: attempt.git_commit} if attempt.git_commit else {}
    return {names.GIT_COMMIT: attempt.git_commit, **commit, **modified}


def _flaw_tags(training: Training, folder: TrainingFolder, best_epoch: int) -> dict[str, str]:
    """What a finished training's epochs say against its numbers."""
    records, warmup = _records(folder), training.stage.warmup_epochs
    flaws = {
        names.BELOW_WARMUP: below_warmup(records, warmup, best_epoch),
        names.WEAK: weak_objective(records, warmup),
    }
    return {tag: text for tag, text in flaws.items() if text}


def short_digest(sha256: str) -> str:
    """The first 12 hex digits of a digest, enough for people to compare."""
    return sha256[:12]


def _epoch_points(folder: TrainingFolder) -> list[Point]:
    """The epochs in the store."""
    return [Point(record["epoch"], record["metrics"], float(record["time"])) for record in _records(folder)]


def _records(folder: TrainingFolder) -> list[dict[str, Any]]:
    """The epochs in the store; none where the file is damaged: `status` reports it, and what is tracked stays."""
    try:
        return folder.records()
    except (GoalError, OSError):
        return []


def _test_metrics(result: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(value) for key, value in result["metrics"].items() if key.startswith(names.TEST_PREFIX)}


def _final_point(result: Mapping[str, Any], test: Mapping[str, float], epochs: list[Point]) -> Point:
    """The metrics of a result on the test split, and those of the selected epoch on the val split."""
    best = int(result["best_epoch"])
    of_best = next((point.metrics for point in epochs if point.step == best), {})
    val = {key.removeprefix(names.VAL_PREFIX): of_best[key] for key in of_best if key.startswith(names.VAL_PREFIX)}
    selected = {f"{names.SELECTED_PREFIX}{name}": value for name, value in val.items()}
    return Point(best, {**test, **selected}, float(result.get("finished", time.time())))
