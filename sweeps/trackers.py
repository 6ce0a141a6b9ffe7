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

    def epoch(self, training: str, epoch: int, metrics: Mapping[str, float]) -> None:
        """An epoch of a training has ended.

        Args:
            training: its key.
            epoch: from 1; the same again where a training repeats it after a stop.
            metrics: such as `train/loss`, `val/rsum`, `time/step_ms`.
        """

    def end(self, training: str, status: str, metrics: Mapping[str, float]) -> None:
        """A training has ended.

        Args:
            training: its key; that of one which has never begun if it cannot.
            status: `done` or `failed`.
            metrics: such as `test/rsum`, of the selected epoch; empty of one that failed.
        """

    def close(self) -> None:
        """The launch ends. Trainings that have not ended go on in the next."""


trackers: Registry[Callable[[str], Tracker]] = Registry("tracker")
"""Classes of trackers, by name. Those of a sweep's plugins follow its launches."""
