"""Trackers of one's own: they hear of each training while a launch goes on, beside MLflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from goal_sweep.goal_core.basics.registry import Registry


class Tracker(Protocol):
    """Follows the trainings of a launch in its driver.

    Its class is called with the sweep's name when the first training begins. All calls come one after another from one
    thread, which is not that of the launch. What a call raises is told once, and harms no training. What was lost with
    a machine is not told; `goal_sweep.results` has all.
    """

    def begin(self, training: str, about: Mapping[str, Any]) -> None:
        """A training begins, or goes on after a stop, perhaps within the same launch.

        Args:
            training: its key, 16 hex digits, the same in every launch.
            about: what `goal_sweep.results` says of it beforehand, such as `name`, `cell`, `seed`,
                `setting/stages.frozen.lr`.
        """

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        """An epoch of a training has ended.

        Args:
            training: its key.
            record: `epoch` (from 1; the same again where a training repeats it after a stop), `time` (seconds since
                1970), and `metrics`, such as `train/loss`, `val/rsum`, `time/step_ms`.
        """

    def end(self, training: str, row: Mapping[str, Any]) -> None:
        """A training has ended for this launch.

        Args:
            training: its key; that of one which has never begun if it cannot.
            row: all that `goal_sweep.results` says of it: `status` (`done`, `failed`, or `waiting` where the next
                launch goes on), metrics such as `test/rsum`, and those of every epoch in `epochs/...`.
        """


trackers: Registry[Callable[[str], Tracker]] = Registry("tracker")
"""Classes of trackers, by name. Those of a sweep's plugins follow its launches."""
