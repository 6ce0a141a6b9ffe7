"""The parts of Ray Tune that are replaced: its queue, its order, its callback, and two of its habits.

Loading this module loads Ray. Tune pickles its parts into a file that nothing reads, so each says that it is a plain
one of Tune's.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import NoopStopper
from ray.util.placement_group import placement_group

from runners.execution.capacity import Resources
from runners.execution.unit_watch import UnitWatch

_NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each machine."""
_SELECTS_LABELS = "bundle_label_selector" in inspect.signature(placement_group).parameters
_IDLE_S = 0.1


class UnitQueue(Searcher):  # type: ignore[misc]  # ray is not typed
    """Gives Tune one unit after the other, each with a reference to its own job.

    It lets Tune wait while units run that others may follow.

    Args:
        watch: has the line of the units.
        elsewhere: whether other machines may train a unit that one cannot.
        most: units that may ask for room at the same time. The others stay in line, where a unit of a lower rank can
            still overtake them.
    """

    def __init__(self, watch: UnitWatch, *, elsewhere: bool, most: int) -> None:
        super().__init__()
        self._watch, self._elsewhere, self._most = watch, elsewhere, most

    def suggest(self, trial_id: str) -> Any:
        line = self._watch.line
        if line.is_over:
            return Searcher.FINISHED
        unit = line.take() if self._watch.num_pending < self._most else None
        if unit is None:
            return None
        return {"unit": unit, "job": ray.put(self._watch.fitted(unit)), "elsewhere": self._elsewhere}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return Searcher, ()


class UnitOrder(FIFOScheduler):  # type: ignore[misc]  # ray is not typed
    """Starts units in their order, keeps them off the machines to avoid, and lets them wait after a death.

    Tune's own looks through all trials for the next one at every step.
    """

    def __init__(self, watch: UnitWatch) -> None:
        super().__init__()
        self._watch = watch
        self._due: dict[Any, float] = {}
        """When each of the trials that wait after a death may start."""

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        if trial in self._due:
            tune_controller._set_trial_status(trial, trial.PAUSED)
        elif not trial.num_failures:
            unit = trial.config["unit"]
            trial.update_resources(request(self._watch.need(unit), self._watch.avoid(unit)))

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        if not trial.should_recover():
            return
        unit = trial.config["unit"]
        pause = self._watch.died(unit, error_text(trial))
        trial.update_resources(request(self._watch.need(unit), self._watch.avoid(unit)))
        if pause:
            self._due[trial] = time.monotonic() + pause
        if self._watch.is_hopeless(unit):
            trial.max_failures = trial.num_failures  # the next failure is the last

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        now = time.monotonic()
        for trial, due in list(self._due.items()):
            if trial.status != trial.PAUSED:
                del self._due[trial]
            elif due <= now:
                del self._due[trial]
                return trial
        if self._due:
            time.sleep(_IDLE_S)  # Tune does not wait where nothing runs
        return None

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return FIFOScheduler, ()


class UnitCallback(tune.Callback):  # type: ignore[misc]  # ray is not typed
    """Passes what Tune tells of its trials on to the watch.

    Args:
        watch: follows the units.
        step: called before each step of Tune.
        check: called after each step of Tune.
    """

    def __init__(self, watch: UnitWatch, step: Callable[[], None], check: Callable[[], None]) -> None:
        self._watch, self._step, self._check = watch, step, check

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.started(trial.config["unit"])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._watch.reported(trial.config["unit"], result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.completed(trial.config["unit"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.given_up(trial.config["unit"], error_text(trial))

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._step()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._check()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return tune.Callback, ()


class UnitStopper(tune.Stopper):  # type: ignore[misc]  # ray is not typed
    """Ends all units when `stopping` says so."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._stopping()

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return NoopStopper, ()


def request(need: Resources, avoid: Sequence[str]) -> Any:
    """What Tune asks of Ray for a unit, which must not start on some machines."""
    if not avoid or not _SELECTS_LABELS:
        return tune.PlacementGroupFactory([need.bundle])
    return tune.PlacementGroupFactory([need.bundle], bundle_label_selector=[{_NODE_ID: f"!in({','.join(avoid)})"}])


def error_text(trial: Any) -> str:
    """The last error of a trial, as Tune keeps it in a file; empty if it cannot be read."""
    try:
        return Path(trial.error_file).read_text()
    except (OSError, TypeError):
        return ""


@contextmanager
def without_habits() -> Iterator[None]:
    """Keep Tune from three of its habits, as far as this version has them.

    Its handler for SIGUSR1 would end the units before they have saved. It takes the end of a worker for want of memory
    for a mistake of its own, and ends everything. It writes the state of all trials to disk again and again, which
    nobody reads.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.tune import tune as module
    from ray.tune.execution.tune_controller import TuneController

    original = getattr(RayActorManager, "_actor_task_failed", None)

    def task_failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(exception, RayActorError | RayTaskError):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
        if original is not None:
            original(self, tracked_actor_task, exception)

    replaced = {
        # If a later version of Tune has no such function, the handlers that `UnitObserver.step` sets replace Tune's.
        (module, "_setup_signal_catching"): threading.Event,
        (RayActorManager, "_actor_task_failed"): task_failed,
        (TuneController, "_get_trial_checkpoints"): lambda self: {},
    }
    before = {place: getattr(*place) for place in replaced if hasattr(*place)}
    for place in before:
        setattr(*place, replaced[place])
    try:
        yield
    finally:
        for place, function in before.items():
            setattr(*place, function)
