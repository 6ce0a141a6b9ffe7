"""What a launch still has to do, by the store as it was read and by what has ended since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.signals import STOPPED
from goal_sweep.runners.launch.tuning import describe
from goal_sweep.runners.store import TrainingStatus
from goal_sweep.runners.store.status import status_of
from goal_sweep.sweeps.cells import Training

DONE, SOME_FAILED = 0, 1
"""Exit statuses of a launch that no signal has stopped, with `STOPPED` where something is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """The options of one launch."""

    address: str | None = None
    """Address of a Ray cluster; None trains on this machine."""
    failed: Literal["keep", "retry", "only"] = "keep"
    """Failed trainings: keep them failed, also retry them, or retry nothing else."""
    fail_fast: bool = False


class Remaining:
    """Which trainings a launch will still try, and which of them can start."""

    def __init__(self, sweep: OpenedSweep, options: LaunchOptions) -> None:
        self.sweep, self._options = sweep, options
        self.progress = sweep.progress()
        self.left: set[Training] = set()
        """Trainings that this launch will not retry; the next may."""
        self.under_way: set[Training] = set()
        """Those whose units wait for a start, or run."""
        self._not_asked: set[Training] = set()
        self._forgiven: dict[Training, int] = {}
        """Counted failures of earlier launches, which do not count for this one."""
        for training in sweep.trainings if options.failed != "keep" else ():
            status = self.progress[training]
            if status.state == "failed":
                self._forgiven[training] = status.failures
                self.progress.waiting(training)
            elif options.failed == "only" and status.state != "done":
                self._not_asked.add(training)

    def read(self, trainings: Iterable[Training]) -> dict[Training, TrainingStatus]:
        """Read the status of trainings from the store, with what this launch forgives."""
        allowed, store = self.sweep.config.resources.max_attempts, self.sweep.store
        return {one: status_of(store.folder(one), allowed + self._forgiven.get(one, 0)) for one in trainings}

    def startable(self, *, ahead: bool = False) -> list[Training]:
        """The trainings that can start and are not under way; `ahead` also those whose stage before is not done."""
        return [one for one in self.sweep.trainings if one not in self.under_way and self._can_start(one, ahead=ahead)]

    def _can_start(self, training: Training, *, ahead: bool) -> bool:
        if training.number is None and self.sweep.is_searching:
            return False  # what reports waits for the choice
        if training in self._not_asked or training in self.left or self.progress[training].state != "waiting":
            return False
        earlier = "done" if training.before is None else self.progress[training.before].state
        return earlier == "done" or (ahead and earlier != "failed" and training.before not in self.left)

    @property
    def held(self) -> list[Training]:
        """The trainings that another launch trains."""
        return [one for one in self._asked() if one not in self.under_way and self.progress[one].state == "running"]

    def search_on(self) -> bool:
        """Ask the search for what follows from the scores by now. Returns whether there is anything new."""
        if not self.sweep.studies or self._options.failed == "only":
            return False
        later = self.sweep.searched()
        if later.studies == self.sweep.studies:
            return False
        self.sweep = later
        known = set(self.progress.trainings)
        self.progress.adopt(later.trainings, self.read(one for one in later.trainings if one not in known))
        self.progress.phase = describe(later)
        return True

    def _asked(self) -> Sequence[Training]:
        """The trainings that the launch is for: while the sweep searches, its candidates."""
        searching = self.sweep.is_searching
        wanted = (one for one in self.sweep.trainings if not searching or one.number is not None)
        return [one for one in wanted if one not in self._not_asked]

    @property
    def exit_status(self) -> int:
        """Exit status of the launch if no signal has stopped it: 0 done, 1 some failed, 75 some are left."""
        counts = self.progress.counts(self._asked())
        if counts["failed"]:
            return SOME_FAILED
        return STOPPED if counts["waiting"] or counts["running"] else DONE
