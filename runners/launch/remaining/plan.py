"""What a launch will try: what is left, what is repeated, and what is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.launch.opened_sweep import OpenedSweep
from goal_sweep.runners.launch.signals import STOPPED
from goal_sweep.runners.store import BEST, charged_failures
from goal_sweep.sweeps import Training

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
    """Which of how many launches that share the sweep this one is, from 1; None is the only one. A launch that shares
    begins with its part of the units, then takes what nobody holds, and leaves MLflow to `goal-sweep sync`."""
    wait_s: float = 0.0
    """Seconds to wait for another launch of the same trainings to end."""


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
        self.given_up: set[Training] = set()
        """Trainings that this launch will not try again."""
        self._damaged = [training for training in sweep.trainings if self.progress[training].damaged]
        self._repeated = self._to_repeat()
        for training in self._repeated:
            self.progress.restart(training)
        if options.failed != "keep":
            self._forgive(only=options.failed == "only")
        self._fail_without_start()

    def _to_repeat(self) -> list[Training]:
        """The finished trainings that start over: by `--force` of this launch, or of one that was cut off before."""
        if self._options.failed == "only":
            return []
        done = [training for training in self._sweep.trainings if self.progress[training].state == "done"]
        if self._options.force:
            return done
        decided = self._sweep.store.repeats()
        repeated = [training for training in done if training.key in decided]
        if repeated and self._options.share:
            raise GoalError(
                f"a launch with --force was cut off before it set aside {len(repeated)} finished trainings of this "
                "sweep; launch it once without --share"
            )
        return repeated

    def decide_repeats(self) -> int:
        """Write into the store which finished trainings start over, so that a restart or relaunch carries it on.

        Returns:
            How many do.

        Raises:
            StorageError: it cannot be written. Nothing starts over then.
        """
        if self._options.force and self._repeated:
            keys = [training.key for training in self._repeated]
            self._sweep.store.decide_repeats(self._sweep.config.name, keys)
        return len(self._repeated)

    def set_aside_finished(self, refused: Callable[[Training, Exception], None]) -> int:
        """Move away the results of the trainings that start over. Nothing may train before this has ended.

        Args:
            refused: called with a training whose folder cannot be moved, and the error. The others go on.

        Returns:
            How many start over because a file of theirs is damaged.
        """
        store, kept = self._sweep.store, set[Training]()
        if decided := store.repeats():
            for training in self._repeated:
                if training.key in decided and not self._set_aside(training, "replaced", refused):
                    kept.add(training)
            # A launch that was cut off may have moved some, which must not start over once more when they are done.
            over = {one.key for one in self._sweep.trainings if self.progress[one].state != "done" and one not in kept}
            store.settle_repeats(over)
        damaged = [training for training in self._damaged if training not in self.given_up]
        return sum(self._set_aside(training, "damaged", refused) for training in damaged)

    def set_aside_damaged(
        self, trainings: Iterable[Training], refused: Callable[[Training, Exception], None]
    ) -> list[Training]:
        """Read what trainings start from, and move away the results whose weights or states are damaged or missing.

        A training that continues another needs the state in which that ended, which `goal-sweep gc` removes when
        nothing seems to need it any more.

        Args:
            trainings: the trainings.
            refused: as for `set_aside_finished`.

        Returns:
            The trainings whose results are damaged. Those that were moved must be trained again.
        """
        store, trainings = self._sweep.store, list(trainings)
        before = list(dict.fromkeys(one.before for one in trainings if one.before is not None))
        statuses = store.status(before, thorough=True)
        continued = {one.before for one in trainings if one.before is not None and one.continues}
        damaged = [
            training
            for training, status in statuses.items()
            if status.damaged
            or (status.state == "done" and training in continued and not store.folder(training).can_be_continued())
        ]
        for training in damaged:
            self._set_aside(training, "damaged", refused)
        return damaged

    def _set_aside(
        self, training: Training, why: Literal["replaced", "damaged"], refused: Callable[[Training, Exception], None]
    ) -> bool:
        try:
            self._sweep.store.set_aside(training, why)
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
        """Exit status of the launch if no signal has stopped it: 0 done, 1 some cells failed, 75 something is left."""
        # While the sweep searches, its candidates alone are asked for.
        searching = self._sweep.is_searching
        counts = self.progress.counts(one for one in self._sweep.trainings if not searching or one.number is not None)
        if counts["failed"]:
            return SOME_FAILED
        if self._options.share is not None:  # it ends when others hold what is left
            return DONE
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
        if training in self.given_up or self.progress[training].state not in ("waiting", "running"):
            return False
        earlier = "done" if training.before is None else self.progress[training.before].state
        return earlier == "done" or (ahead and earlier != "failed")
