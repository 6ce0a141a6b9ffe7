"""Trackers: they hear of each training while a launch goes on, beside MLflow."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from goal_sweep.goal_core.basics.registry import Registry

BuiltIn = Literal["wandb", "tensorboard"]
"""Trackers that `tracking.also` switches on, each named like the library and the extra that it needs."""


class Tracker(Protocol):
    """Follows the trainings of a launch, each named by its key, the same in every launch.

    Its class is called with the sweep's name when a launch begins. All calls come one after another from one
    thread, which is not that of the launch. What a call raises is told once, and harms no training.
    """

    def begin(self, training: str, about: Mapping[str, Any]) -> None:
        """A training begins, or goes on; `about` is what `goal_sweep.results` says of it beforehand, such as `name`."""

    def epoch(self, training: str, record: Mapping[str, Any]) -> None:
        """An epoch has ended; `record` is its line of `metrics.jsonl`, with `epoch`, `time` and `metrics`."""

    def end(self, training: str, row: Mapping[str, Any]) -> None:
        """A training has ended for this launch; `row` is all that `goal_sweep.results` says of it."""


trackers: Registry[Callable[[str], Tracker]] = Registry("tracker")
"""Classes of trackers, by name. Those of a sweep's plugins follow its launches."""
