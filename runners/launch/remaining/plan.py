"""What a launch will try: what is left, what is repeated, and what is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.execution.session.supervisor import STOPPED
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.store import BEST, charged_failures
from goal_sweep.sweeps import Training, pack

DONE, SOME_FAILED = 0, 1
"""Exit statuses of a launch that no signal has stopped, with `STOPPED` where something is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of one launch."""

    address: str | None = None
    """Address of a Ray cluster; None trains on this machine."""
    devices: int = 0
    """Devices that a cluster which adds machines may grow to; 0 for one that does not grow."""
    failed: Literal["keep", "retry", "only"] = "keep"
    """Trainings without attempts left: keep them failed, also retry them, or retry only them."""
    force: bool = False
    """Repeat finished trainings; their old results are set aside."""
    fail_fast: bool = False
    """Stop at the first failed training."""
    share: tuple[int, int] | None = None
    """Which of how many launches that share the sweep this one is, from 1; None is the only one. Each trains a part of
    the cells, and leaves MLflow to `goal-sweep sync`."""
    wait_s: float = 0.0
    """Seconds to wait for another launch of the same trainings to end."""


def of_others(sweep: OpenedSweep, share: tuple[int, int] | None) -> set[Training]:
    """The trainings that other launches do: all share the cells evenly, in the order in which these share units.

    Raises:
        GoalError: the sweep searches.
    """
    if share is None:
        return set()
    if sweep.config.tune is not None:
        raise GoalError("a search compares the results of all cells, so launch it without --share")
    units, (number, count) = pack(sweep.by_stage[0], sweep.config.execution), share
    cells = list(dict.fromkeys(training.cell.id for unit in units for training in unit.trainings))
    own = {*cells[len(cells) * (number - 1) // count : len(cells) * number // count]}
    return {training for training in sweep.trainings if training.cell.id not in own}


class LaunchPlan:
    """Which trainings a launch will still try.

    Args:
        sweep: the sweep.
        options: the options of this launch.
    """

    def __init__(self, sweep: OpenedSweep, options: LaunchOptions) -> None:
        self._sweep, self._options = sweep, options
        self.progress = sweep.progress()
        self.forgiven: dict[Training, int] = {}
        """Number of each training's charged attempts that no longer count."""
        self.of_others = of_others(sweep, options.share)
        """Trainings that other launches do."""
        self.given_up = {*self.of_others}
        """Trainings that this launch will not try."""
        self.left: set[Training] = set()
        """Those that it will not try again, though they have attempts left: they wait for the next one."""
        self._damaged = [training for training in sweep.trainings if self.progress[training].damaged]
        done = [training for training in sweep.trainings if self.progress[training].state == "done"]
        self._repeated = done if options.force else []
        for training in self._repeated:
            self.progress.restart(training)
        if options.failed != "keep":
            self._forgive(only=options.failed == "only")
        self._fail_without_start()

    def set_aside_repeated(self) -> int:
        """Move away the results that `--force` repeats; nothing may train before this has ended.

        Later stages leave first, so that no result stays beside weights that it does not come from. If this is cut off,
        `--force` once more moves the rest.

        Returns:
            How many there were.

        Raises:
            StorageError: one cannot be moved.
        """
        for training in reversed(self._repeated):
            self._sweep.store.set_aside(training, "replaced")
        return len(self._repeated)

    def set_aside_found(self, refused: Callable[[Training, Exception], None]) -> int:
        """Move away the results in which the store has found damage; nothing may train before this has ended.

        Args:
            refused: called with a training whose folder cannot be moved, and the error. The others go on.

        Returns:
            How many were moved.
        """
        damaged = [training for training in self._damaged if training not in self.given_up]
        return sum(self._set_aside(training, refused) for training in damaged)

    def set_aside_damaged(
        self, trainings: Iterable[Training], refused: Callable[[Training, Exception], None]
    ) -> list[Training]:
        """Read what trainings start from, and move away the results whose weights are damaged or missing.

        Args:
            trainings: the trainings.
            refused: as for `set_aside_found`.

        Returns:
            The trainings whose results are damaged. Those that were moved must be trained again.
        """
        store, trainings = self._sweep.store, list(trainings)
        before = list(dict.fromkeys(one.before for one in trainings if one.before is not None))
        statuses = store.status(before, thorough=True)
        damaged = [training for training, status in statuses.items() if status.damaged]
        for training in damaged:
            self._set_aside(training, refused)
        return damaged

    def _set_aside(self, training: Training, refused: Callable[[Training, Exception], None]) -> bool:
        try:
            self._sweep.store.set_aside(training, "damaged")
        except OSError as error:
            refused(training, error)
            return False
        self.progress.restart(training)
        return True

    def _forgive(self, *, only: bool) -> None:
        """Set failed trainings back to waiting; with ``only``, give up all others."""
        for training in self._sweep.trainings:
            state = self.progress[training].state
            if state == "failed":
                charged = charged_failures(self._sweep.store.folder(training).attempts.all())
                self.forgiven |= {training: charged} if charged else {}
                self.progress.waiting(training)
            elif only and state != "done":
                self.given_up.add(training)

    def _fail_without_start(self) -> None:
        """Fail trainings whose stage before is done but has no weights, because its result was imported."""
        for training in self._sweep.trainings:
            before = training.before
            if before is None or self.progress[training].state != "waiting" or self.progress[before].state != "done":
                continue
            # Weights beside an imported result are not those that gave its numbers, whatever the archive stated.
            if self.progress[before].imported and before not in self._repeated:
                reason = f"its {before.stage.name} stage has no {BEST} to start from"
                self.progress.failed(training, f"{reason} (imported results come without weights)")

    @property
    def exit_status(self) -> int:
        """Exit status of the launch if no signal has stopped it: 0 done, 1 some failed or were left, 75 some wait."""
        # While the sweep searches, its candidates alone are asked for.
        searching = self._sweep.is_searching
        own = [one for one in self._sweep.trainings if one not in self.of_others]
        counts = self.progress.counts(one for one in own if not searching or one.number is not None)
        if counts["failed"] or self.left:
            return SOME_FAILED
        # --only-failed leaves the others waiting.
        return STOPPED if counts["waiting"] and self._options.failed != "only" else DONE

    def startable(self, trainings: Sequence[Training], *, ahead: bool) -> list[Training]:
        """Select the trainings that are not done yet and can start.

        Args:
            trainings: the trainings to choose from.
            ahead: also select those whose stage before is not done yet.
        """
        return [training for training in trainings if self._can_start(training, ahead=ahead)]

    def _can_start(self, training: Training, *, ahead: bool) -> bool:
        if training.number is None and self._sweep.is_searching:
            return False  # what reports waits for the choice
        if training in self.given_up | self.left or self.progress[training].state not in ("waiting", "running"):
            return False
        earlier = "done" if training.before is None else self.progress[training.before].state
        return earlier == "done" or (ahead and earlier != "failed" and training.before not in self.left)
