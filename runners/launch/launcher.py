"""`goal-sweep launch`: train what is missing of a sweep, stage by stage, and leave store and tracking complete.

The store decides what is missing; Ray Tune runs it; this process alone writes MLflow, from what the store holds.
Killed at any point and started again, it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from goal_core.errors import GoalError
from goal_core.training import EpochDone, TrainingDone, TrainingEvent, TrainingFailed
from runners.execution.ray_tune import RayLostError, RayUnits, Resources, UnitObserver
from runners.execution.worker import HOPELESS, UnitJob
from runners.launch.live import LiveView, overview, plus_minus
from runners.launch.opened_sweep import OpenedSweep
from runners.launch.progress import SweepProgress
from runners.store.attempts import Attempt, Outcome
from runners.store.heartbeat import Heartbeat
from runners.store.training_folder import BEST, charged_failures, end_attempt
from runners.tracking.sync import SweepTracking, track
from sweeps import Cell, Unit, pack

DONE, SOME_FAILED, INTERRUPTED = 0, 1, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """What the command line says about one launch."""

    address: str | None = None
    """A Ray cluster; None runs on this machine."""
    retry_failed: bool = False
    """Also try cells again that have used up their attempts."""
    only_failed: bool = False
    """Try those, and nothing else."""
    fail_fast: bool = False
    """Stop at the first failed cell."""


@dataclass(slots=True)
class _Progress:
    """What a stage's rounds have to remember."""

    forgiven: dict[str, int] = field(default_factory=dict)
    """Charged attempts by stage key that `--retry-failed` does not count."""
    given_up: set[str] = field(default_factory=set)
    """Stage keys that this launch will not try again."""
    abandoned: dict[str, str] = field(default_factory=dict)
    """Cell ids whose worker died more often than Ray starts it again, with what it said last."""


class Launcher:
    """One launch of one sweep.

    Args:
        study: the sweep.
        options: the command line's.
        console: where to show progress.

    Raises:
        GoalError: the options exclude each other.
    """

    def __init__(self, study: OpenedSweep, options: LaunchOptions, console: Console) -> None:
        if options.retry_failed and options.only_failed:
            raise GoalError("--retry-failed and --only-failed exclude each other")
        self.study, self.options, self.console = study, options, console
        self.board: SweepProgress = study.board()
        self.view = LiveView(self.board, study.config.name, console)
        self.launch: Heartbeat | None = None
        self.tracking: SweepTracking | None = None
        self._progress = _Progress()
        self._stopping = False
        self.nothing_to_do = False
        """Whether :meth:`run` found every cell settled."""

    def run(self) -> int:
        """Train what is missing.

        Returns:
            0 when every cell is done, 1 when some failed, 130 when interrupted.

        Raises:
            RayLostError: Ray has no machine left; what was trained is kept, and a new launch continues from it.
            GoalError: nothing can be trained, and why.
        """
        self._forgive()
        self._mark_startless()
        wanted = [stage for stage in range(len(self.study.config.stages)) if self._todo(stage)]
        if wanted:
            self.study.check_trainable()
        with track(self.study, warn=self._warn) as self.tracking:
            self.tracking.sync_all()
            if not wanted:
                self.nothing_to_do = True
                return self._finish()
            with self.study.store.launch(self.study.config.name) as self.launch:
                self.launch.start(self._keys_to_train())
                return self._train()

    def _warn(self, line: str) -> None:
        self.view.note(f"tracking: {line}")

    def _forgive(self) -> None:
        """With `--retry-failed`, failed cells wait again; without, they stay failed."""
        if not (self.options.retry_failed or self.options.only_failed):
            return
        for cell, stage, ref in self.study.refs():
            entry = self.board[cell.id, cell.stages[stage].name]
            if entry.state == "failed":
                charged = charged_failures(self.study.store.folder(ref).attempts.all())
                self._progress.forgiven[ref.key] = charged
                self.board.waiting(cell.id, cell.stages[stage].name)
            elif self.options.only_failed and entry.state != "done":
                self._progress.given_up.add(ref.key)

    def _mark_startless(self) -> None:
        """A stage whose earlier one is done without weights, as imported results are, can only fail: say so at once."""
        for cell, stage, _ in self.study.refs():
            entry = self.board[cell.id, cell.stages[stage].name]
            if (
                not stage
                or entry.state != "waiting"
                or self.board[cell.id, cell.stages[stage - 1].name].state != "done"
            ):
                continue
            start = self.study.store.folder(self.study.ref(cell, stage - 1)).path(BEST)
            if not start.is_file():
                before = cell.stages[stage - 1].name
                reason = f"its {before} stage has no {BEST} to start from (imported results come without weights)"
                self.board.failed(cell.id, cell.stages[stage].name, reason)

    def _keys_to_train(self) -> list[str]:
        stages = range(len(self.study.config.stages))
        return [cell.stages[stage].key for stage in stages for cell in self._startable(stage, ahead=True)]

    def _startable(self, stage: int, *, ahead: bool) -> list[Cell]:
        """Cells that this stage has yet to train.

        Args:
            stage: which stage.
            ahead: also count cells whose earlier stage is still to come.
        """
        chosen = []
        for cell in self.study.cells:
            entry = self.board[cell.id, cell.stages[stage].name]
            earlier = [self.board[cell.id, before.name].state for before in cell.stages[:stage]]
            ready = "failed" not in earlier and (ahead or all(state == "done" for state in earlier))
            given_up = cell.stages[stage].key in self._progress.given_up
            if entry.state in ("waiting", "running") and ready and not given_up:
                chosen.append(cell)
        return chosen

    def _todo(self, stage: int) -> list[Cell]:
        return self._startable(stage, ahead=True)

    def _train(self) -> int:
        for cell in self.study.cells:
            self.study.store.write_cell(cell.id, self.study.describe(cell))
        try:
            self._train_stages()
        except RayLostError:
            self._end_running("Ray died")
            raise
        except KeyboardInterrupt:
            self._end_running("interrupted by the user")
            self.view.note("interrupted: the same command continues from the last finished epochs")
            self._finish()
            return INTERRUPTED
        if self._stopping:
            self._end_running("another cell failed (--fail-fast)")
            self.view.note("stopped at the first failure (--fail-fast)")
        return self._finish()

    def _train_stages(self) -> None:
        resources = self.study.config.resources
        with self.view, RayUnits(self.options.address, Resources(cpus=resources.cpus, gpus=resources.gpus)) as ray:
            # MLflow opened while Ray started; what is wrong with it for good is said before anything trains.
            assert self.tracking is not None
            self.tracking.tracking.wait_open()
            for stage in range(len(self.study.config.stages)):
                self._train_stage(ray, stage)

    def _train_stage(self, ray: RayUnits, stage: int) -> None:
        """Rounds of units until every cell of the stage is done or given up.

        A round may leave cells waiting: evicted from a shared unit with attempts left, or robbed of their worker.
        """
        assert self.launch is not None
        while not self._stopping and (cells := self._startable(stage, ahead=False)):
            units = pack(cells, stage, self.study.config.execution)
            jobs = [self.study.job(unit, self.launch.id, self._progress.forgiven) for unit in units]
            self._announce(stage, units, cells)
            before = {cell.id: self._attempts(cell, stage) for cell in cells}
            ray.run(jobs, self._observer())
            for cell in () if self._stopping else cells:
                self._settle(cell, stage, tried=len(self._attempts(cell, stage)) > len(before[cell.id]))

    def _observer(self) -> UnitObserver:
        return UnitObserver(
            started=self._started,
            events=self._events,
            lost=self._lost,
            tick=self.view.refresh,
            stop=lambda: self._stopping,
        )

    def _announce(self, stage: int, units: Sequence[Unit], cells: Sequence[Cell]) -> None:
        name = self.study.config.stages[stage].name
        counts = self.board.counts(self.board.of_stage(stage))
        self.view.note(
            f"{name}: {len(cells)} of {sum(counts.values())} cells to train in {len(units)} units "
            f"({counts['done']} done, {counts['failed']} failed before)"
        )

    def _attempts(self, cell: Cell, stage: int) -> list[Attempt]:
        return self.study.store.folder(self.study.ref(cell, stage)).attempts.all()

    def _settle(self, cell: Cell, stage: int, *, tried: bool) -> None:
        """After a round, take the store's word for a cell: events may have been lost with a worker."""
        ref, name = self.study.ref(cell, stage), cell.stages[stage].name
        allowed = self.study.config.resources.max_attempts + self._progress.forgiven.get(ref.key, 0)
        assert self.launch is not None
        # One worker lost is no fault of the cell; one that dies however often it is started is taken for one.
        message = self._progress.abandoned.pop(cell.id, "")
        outcome: Outcome = "failed" if message else "lost"
        reason = f"its workers died: {message}" if message else "its worker died"
        end_attempt(self.study.store.folder(ref), 0, self.launch.id, outcome, reason, charged=bool(message))
        status = self.study.store.status([ref], max_attempts=allowed)[ref]
        if status.state == "done":
            self._mark_done(cell.id, name, status.result)
        elif status.state == "failed":
            self._mark_failed(cell.id, name, status.reason)
        elif not tried or ref.key in self._progress.given_up:
            self._progress.given_up.add(ref.key)
            self._mark_failed(cell.id, name, status.reason or "no worker ever started it")
        else:
            self.board.waiting(cell.id, name)

    def _started(self, job: UnitJob) -> None:
        for plan in job.plan.cells:
            entry = self.board[plan.cell_id, job.plan.stage.name]
            self.board.running(plan.cell_id, job.plan.stage.name, entry.epoch)
            self._track(plan.cell_id, job.plan.stage.name)

    def _events(self, events: Sequence[TrainingEvent]) -> None:
        for event in events:
            match event:
                case EpochDone(cell_id=cell_id, stage=stage, record=record):
                    self.board.epoch_done(cell_id, stage, record["epoch"], record["metrics"])
                    self.view.epoch(self.board[cell_id, stage])
                    self._track(cell_id, stage)
                case TrainingDone(cell_id=cell_id, stage=stage, result=result):
                    self._mark_done(cell_id, stage, result)
                case TrainingFailed(cell_id=cell_id, stage=stage, kind=kind, reason=reason):
                    self._evicted(cell_id, stage, kind, reason)

    def _mark_done(self, cell_id: str, stage: str, result: Mapping[str, Any]) -> None:
        if self.board[cell_id, stage].state != "done":
            self.board.done(cell_id, stage, result)
            self.view.done(self.board[cell_id, stage])
        self._track(cell_id, stage)

    def _mark_failed(self, cell_id: str, stage: str, reason: str) -> None:
        if self.board[cell_id, stage].state != "failed":
            self.board.failed(cell_id, stage, reason)
            self.view.failed(self.board[cell_id, stage])
        self._track(cell_id, stage)
        self._stopping |= self.options.fail_fast

    def _evicted(self, cell_id: str, stage: str, kind: str, reason: str) -> None:
        if kind in HOPELESS:
            self._mark_failed(cell_id, stage, reason)
            return
        if kind == "storage":
            # The next launch tries again, when there is room; this one would only fail over and over.
            self._progress.given_up.add(self.board[cell_id, stage].key)
            self._mark_failed(cell_id, stage, reason)
            return
        self.board.waiting(cell_id, stage)
        self.view.note(f"{self.board[cell_id, stage].name}: {reason}")

    def _lost(self, job: UnitJob, message: str) -> None:
        """A worker died. Its cells go on in the trial's next start, or, when there is none, in the next round."""
        assert self.launch is not None
        if message:
            self._progress.abandoned.update({plan.cell_id: message for plan in job.plan.cells})
            self.view.note(f"{job.label}: given up for this round, {message}")
        else:
            self.view.note(f"{job.label}: its worker died, starting again from the last checkpoints")

    def _track(self, cell_id: str, stage: str) -> None:
        assert self.tracking is not None
        self.tracking.sync(cell_id, stage)

    def _end_running(self, reason: str) -> None:
        assert self.launch is not None
        for cell, stage, ref in self.study.refs():
            entry = self.board[cell.id, cell.stages[stage].name]
            if entry.state == "running":
                end_attempt(self.study.store.folder(ref), 0, self.launch.id, "interrupted", reason, charged=False)
                self.board.waiting(cell.id, cell.stages[stage].name)

    def _finish(self) -> int:
        """Bring tracking up to date and show how the sweep stands."""
        assert self.tracking is not None
        self.tracking.sync_all(wait=60)
        if self.tracking.trouble:
            self.view.note(f"tracking: {self.tracking.trouble} (goal-sweep sync brings it up to date)")
        sign = plus_minus(self.console)
        self.console.print(overview(self.board, self.study.config.name, live=False, sign=sign))
        counts = self.board.counts()
        return DONE if counts["failed"] == 0 and counts["waiting"] == 0 else SOME_FAILED
