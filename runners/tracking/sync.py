"""Makes tracking say what the store says, and changes nothing where it does already.

There is one way for a number into MLflow, and this is it: while a sweep trains, each sign of life of a cell has
its run compared with the store; a relaunch and `goal-sweep sync` do the same for every cell. So it does not matter
what was lost, or when.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from goal_core.errors import GoalError
from goal_core.training.triplet_histogram import TRIPLETS
from runners.store.provenance import gather
from runners.store.status import TrainingStatus
from runners.store.store import StageRef, Store
from runners.store.training_folder import METRICS, TrainingFolder, digest
from runners.tracking import schema as names
from runners.tracking.client import Outcome, Tracking
from runners.tracking.queue import one_line
from runners.tracking.runs import Point, RunWriter
from runners.tracking.uri import resolve_uri
from runners.tracking.values import TrackedSweep, objective_key, settings_key
from sweeps import Cell, CellStage, SweepConfig

if TYPE_CHECKING:
    from runners.launch.opened_sweep import OpenedSweep

_log = logging.getLogger(__name__)
_CLOSING = 60.0


class SweepTracking:
    """Keeps the MLflow runs of a sweep as the store has it. Use as a context manager.

    Args:
        uri: from `runners.tracking.uri.resolve_uri`.
        sweep: what the experiment and its parent run say.
        store: the truth; only read.
        cells: the sweep's cells.
        max_attempts: charged failures after which a stage counts as failed.
        live: whether this process trains; the parent run then shows as running until the end.
        thorough: also look for artifacts that somebody deleted.
        warn: told in one line of trouble and of its end, on another thread.
    """

    def __init__(
        self,
        uri: str,
        sweep: TrackedSweep,
        store: Store,
        cells: Iterable[Cell],
        *,
        max_attempts: int = 1,
        live: bool = True,
        thorough: bool = False,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        self._store, self._max_attempts, self._thorough = store, max_attempts, thorough
        self._refused = ""
        self._stages = {(cell.id, stage.name): (cell, stage) for cell in cells for stage in cell.stages}
        self._queued: set[tuple[str, str]] = set()
        self._behind: set[tuple[str, str]] = set()
        # Before anything is trained or written, the store tells whether there is anything to train.
        self.tracking = Tracking(uri, sweep, live=live and self._outcome() != "done", warn=warn)

    def sync(self, cell_id: str, stage: str) -> None:
        """Bring the run of one stage of a cell up to date. Returns at once; repeating it is cheap."""
        key = (cell_id, stage)
        self._behind.add(key)
        if key not in self._queued:
            self._queued.add(key)
            self.tracking.update(partial(self._reconcile, key))

    def sync_all(self, *, wait: float = 0.0) -> bool:
        """Bring every run up to date, and the parent run's status.

        Args:
            wait: seconds to wait for it; 0 returns at once.

        Returns:
            Whether everything is up to date by now.
        """
        for cell_id, stage in self._stages:
            self.sync(cell_id, stage)
        if wait:
            self.tracking.flush(wait)
        return not self._behind

    @property
    def trouble(self) -> str:
        """What is not up to date, and why, in one line; empty when nothing is. Ask after `sync_all` has waited."""
        if not self._behind:
            return ""
        why = self.tracking.warnings[-1] if self.tracking.warnings else "MLflow is slow to answer"
        return f"{len(self._behind)} of {len(self._stages)} runs are not up to date: {why}"

    def close(self) -> None:
        """Write what is left, say how the sweep stands, and let go; waits a minute at most."""
        try:
            outcome = self._outcome()
        except GoalError:
            outcome = "interrupted"
        self.tracking.close(outcome, _CLOSING)

    def __enter__(self) -> SweepTracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _outcome(self) -> Outcome:
        refs = [_ref(cell, stage) for cell, stage in self._stages.values()]
        states = {status.state for status in self._store.status(refs, max_attempts=self._max_attempts).values()}
        if states <= {names.DONE}:
            return "done"
        return "interrupted" if states & {names.WAITING, names.RUNNING} else "failed"

    def _reconcile(self, key: tuple[str, str], runs: RunWriter) -> None:
        self._queued.discard(key)
        cell, stage = self._stages[key]
        ref = _ref(cell, stage)
        status = self._store.status([ref], max_attempts=self._max_attempts)[ref]
        reconcile(runs, cell, stage, self._store.folder(ref), status)
        if status.state != names.RUNNING:
            self._attach_triplets(runs, stage, self._store.folder(ref))
        if key not in self._queued:
            self._behind.discard(key)

    def _attach_triplets(self, runs: RunWriter, stage: CellStage, folder: TrainingFolder) -> None:
        """Give the run the stage's triplet record, if there is one and the run lacks it.

        An artifact store that refuses must not keep numbers out of MLflow: it is told of once, and the rest goes on.
        """
        path = folder.path(TRIPLETS)
        settled = runs.status(stage) == names.DONE and runs.has_triplets(stage, look=self._thorough)
        if settled or not runs.status(stage) or not path.is_file():
            return
        try:
            sha256 = digest(path)
            if not runs.has_triplets(stage, sha256, look=self._thorough):
                runs.attach_triplets(stage, path, sha256)
        except Exception as error:
            if not self._refused:
                self.tracking.tell(f"triplet records are not attached to their runs: {one_line(error)}")
            self._refused = one_line(error)


def track(
    study: OpenedSweep, *, live: bool = True, thorough: bool = False, warn: Callable[[str], None] = _log.warning
) -> SweepTracking:
    """The tracking of an opened sweep.

    Args:
        study: the sweep.
        live: as in `SweepTracking`.
        thorough: as in `SweepTracking`.
        warn: as in `SweepTracking`.

    Raises:
        TrackingError: the sweep's tracking URI is not one that can work.
    """
    sweep = tracked_sweep(study.config, study.cells, study.dataset.fingerprint, study.weights)
    uri = resolve_uri(study.config.tracking, study.store.root)
    attempts = study.config.resources.max_attempts
    return SweepTracking(
        uri, sweep, study.store, study.cells, max_attempts=attempts, live=live, thorough=thorough, warn=warn
    )


def tracked_sweep(
    config: SweepConfig, cells: Iterable[Cell], data_fingerprint: str, weights: Mapping[str, str]
) -> TrackedSweep:
    """What tracking says of a sweep.

    Args:
        config: the sweep.
        cells: its cells.
        data_fingerprint: of its data.
        weights: identity of each backbone's first weights.
    """
    cells = list(cells)
    keys = {cell.objective.name: objective_key(cell) for cell in cells}
    objectives = tuple(f"{pair}/{triplet}" for pair, triplet in config.objectives.names)
    return TrackedSweep(
        name=config.name,
        seeds=config.seeds,
        objectives=objectives,
        stages=tuple(stage.name for stage in config.stages),
        data_fingerprint=data_fingerprint,
        git_commit=gather().git_commit,
        weights=weights,
        objective_keys=tuple(keys[name] for name in objectives),
        settings_keys=tuple(
            dict.fromkeys(settings_key(cell, stage, weights) for cell in cells for stage in cell.stages)
        ),
    )


def _ref(cell: Cell, stage: CellStage) -> StageRef:
    return StageRef(cell.id, stage.name, stage.key)


def reconcile(runs: RunWriter, cell: Cell, stage: CellStage, folder: TrainingFolder, status: TrainingStatus) -> None:
    """Make the run of one stage say what the store says.

    Args:
        runs: the sweep's runs.
        cell: the cell.
        stage: its stage.
        folder: the stage in the store.
        status: how it stands there.
    """
    if status.state == names.DONE:
        final = _final_point(status.result)
        if runs.contradicts(stage, final.metrics):
            runs.discard(stage)
        elif runs.is_settled(cell, stage):
            return
        points = [*_epoch_points(folder), final]
    else:
        if runs.status(stage) == names.DONE:
            runs.discard(stage)  # the store lost the result that these numbers belong to
        if not status.attempts and not runs.status(stage):
            return  # not begun; the parent run says what is asked for
        points = _epoch_points(folder)
    attempts = folder.attempts.all()
    if attempts:
        runs.ensure(cell, stage, attempts[0].started)
    runs.log(cell, stage, points)
    ended = attempts[-1].ended if attempts and status.state != names.DONE else None
    runs.set_status(
        cell,
        stage,
        status.state,
        reason=status.reason,
        ended=points[-1].time if ended is None and points else ended,
        git_commit=attempts[-1].git_commit if attempts else "",
    )


def _epoch_points(folder: TrainingFolder) -> list[Point]:
    """The store's epochs; those without a time of their own have the file's."""
    try:
        records = folder.records()
        written = folder.path(METRICS).stat().st_mtime if records else 0.0
    except (GoalError, OSError):
        return []  # damaged: `status` names it, and what is already tracked stays
    return [Point(record["epoch"], record["metrics"], float(record.get("time", written))) for record in records]


def _final_point(result: Mapping[str, Any]) -> Point:
    """A result's metrics on the test split, at the best epoch."""
    metrics = {key: float(value) for key, value in result["metrics"].items() if key.startswith(names.TEST_PREFIX)}
    return Point(int(result["best_epoch"]), metrics, float(result.get("finished", time.time())))
