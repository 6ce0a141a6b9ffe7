"""What a launch will try: what is left, what is repeated, and what is given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from runners.launch.opened_sweep import OpenedSweep
from runners.store import BEST, charged_failures
from sweeps import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of one launch."""

    address: str | None = None
    """Address of a Ray cluster; None trains on this machine."""
    wait: float | None = None
    """Minutes to wait on a cluster without room for a unit; None waits as long as it takes where room may come."""
    ship_code: bool = False
    """Send this machine's code of goal-sweep to the workers of a cluster."""
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
        self._sweep = sweep
        self.progress = sweep.progress()
        self.forgiven: dict[Training, int] = {}
        """Number of each training's charged attempts that no longer count."""
        self.given_up: set[Training] = set()
        """Trainings that this launch will not try again."""
        self._forced: list[Training] = []
        self._damaged = [one.training for one in self.progress.standings if one.damaged]
        if options.force:
            self._force()
        if options.failed != "keep":
            self._forgive(only=options.failed == "only")
        self._fail_without_start()

    def _force(self) -> None:
        self._forced = [one for one in self._sweep.trainings if self.progress[one].state == "done"]
        for training in self._forced:
            self.progress.restart(training)

    def set_aside_finished(self, refused: Callable[[Training, Exception], None]) -> int:
        """Move away the results of the trainings that will be repeated.

        Args:
            refused: called with a training whose folder cannot be moved, and the error. The others go on.

        Returns:
            How many trainings `--force` repeats.
        """
        for training in self._forced:
            self._set_aside(training, "replaced", refused)
        for training in self._damaged:
            if training not in self.given_up:
                self._set_aside(training, "damaged", refused)
        return len(self._forced)

    def set_aside_damaged(
        self, trainings: Iterable[Training], refused: Callable[[Training, Exception], None]
    ) -> list[Training]:
        """Read what trainings start from, and move away the results whose weights or states are damaged or missing.

        A training that continues another needs the state in which that ended, which `goal-sweep gc` removes when
        nothing seems to need it any more.

        Args:
            trainings: the trainings.
            refused: as of `set_aside_finished`.

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
    ) -> None:
        try:
            self._sweep.store.set_aside(training, why)
        except OSError as error:
            refused(training, error)
        else:
            self.progress.restart(training)

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
            if self.progress[before].imported and before not in self._forced:
                reason = f"its {before.stage.name} stage has no {BEST} to start from"
                self.progress.failed(training, f"{reason} (imported results come without weights)")

    @property
    def asked(self) -> list[Training]:
        """What this launch trains, or has trained: while the sweep searches, its candidates alone."""
        searching = self._sweep.is_searching
        return [training for training in self._sweep.trainings if not searching or training.number is not None]

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
