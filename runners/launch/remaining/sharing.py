"""How launches of the same sweep get along: one waits for another, or several share the sweep."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from goal_sweep.runners.launch.remaining.plan import LaunchPlan
from goal_sweep.runners.store import Heartbeat, LeaseHeldError, State, Store
from goal_sweep.sweeps import Training, Unit

_LOOK_S = 2.0
"""Seconds between looks at whether another launch has ended."""
_MAX_UNTRIED = 3
"""Rounds in which nobody holds a training and yet no worker tries it; then this launch gives it up."""


def start_waiting(heartbeat: Heartbeat, keys: Collection[str], wait_s: float, note: Callable[[str], None]) -> None:
    """Announce the trainings of a launch, and wait for another launch that does some of them already.

    Args:
        heartbeat: the heartbeat of this launch.
        keys: the keys of its trainings.
        wait_s: seconds to wait; a batch job that was killed counts as alive for a minute.
        note: shows a line to the user.

    Raises:
        LeaseHeldError: the other launch still lives after that time.
    """
    deadline, told = time.monotonic() + wait_s, False
    while True:
        try:
            return heartbeat.start(keys)
        except LeaseHeldError as error:
            if time.monotonic() >= deadline:
                raise
            if not told:
                note(f"waiting for another launch: {error}")
        told = True
        time.sleep(_LOOK_S)


class Others:
    """The other launches that share a sweep, as the store shows them.

    Args:
        store: the store.
        launch_id: this launch.
        plan: the plan of this launch; what others finish is noted in it.
        share: the launch's number, from 1, and how many there are.
    """

    def __init__(self, store: Store, launch_id: str, plan: LaunchPlan, share: tuple[int, int]) -> None:
        self._store, self._launch_id, self._plan = store, launch_id, plan
        self._number, self.count = share
        self._held: set[Training] = set()
        self._untried: Counter[Training] = Counter()

    def look(self, trainings: Iterable[Training]) -> None:
        """See what others have finished or hold now."""
        progress = self._plan.progress
        unfinished = [training for training in trainings if progress[training].state in ("waiting", "running")]
        self._held.clear()
        for training, status in self._store.status(unfinished).items():
            if status.state == "done":
                progress.done(training, status.result)
            elif status.state == "running":
                newest = self._store.folder(training).attempts.newest()
                if newest is not None and newest.launch_id != self._launch_id:
                    self._held.add(training)
                    progress.running(training, status.epochs, status.best_rsum)

    def from_own_part(self, units: Sequence[Unit]) -> list[Unit]:
        """Units that nobody holds in the order in which this launch takes them, beginning with a part of its own."""
        first = len(units) * (self._number - 1) // self.count
        return [*units[first:], *units[:first]]

    def hold(self, training: Training) -> bool:
        """Whether another launch held a training at the last look."""
        return training in self._held

    def leaves_alone(self, training: Training, state: State, tried: bool) -> bool:
        """Whether a training that a round has not finished stays open: others hold it, or did a moment ago."""
        if state == "waiting" and not tried:
            self._untried[training] += 1
        return not tried and training not in self._plan.given_up and self._untried[training] < _MAX_UNTRIED

    @property
    def left_to_them(self) -> str:
        """What a launch that ends says of the rest."""
        counts = self._plan.progress.counts()
        left = counts["running"] + counts["waiting"]
        rest = f"{left} trainings are left to the other launches; " if left else ""
        return f"{rest}MLflow is left to goal-sweep sync"
