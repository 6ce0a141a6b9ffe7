"""What Ray Tune is given in place of its own parts: a queue, an order, a callback, and an end; and one mend.

Each trial of Tune is one start of a unit. A unit whose worker has died waits in line again, and its next start is
another trial. Loading this module loads Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.execution.unit_watch import UnitWatch

RAY_VERSIONS = "2.60"
"""The versions of Ray that `memory_kills_end_one_worker` was written for, as in pyproject.toml."""
_NODE_ID = "ray.io/node-id"
"""The label that Ray gives to each machine."""


class _NotKept:
    """Tune writes its parts into a file that nothing reads. Ours hold what cannot be written."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class UnitQueue(_NotKept, Searcher):  # type: ignore[misc]  # ray is not typed
    """Gives Tune one start of a unit after the other, each with a reference to its own job.

    It lets Tune wait while units run that others may follow. Where none runs, Tune asks it once a second and does
    nothing else.

    Args:
        watch: has the units.
        elsewhere: whether other machines may train a unit that one cannot.
        most: units that may ask for room at the same time.
        check: called with each question while no unit runs; whether Tune should end.
    """

    def __init__(self, watch: UnitWatch, *, elsewhere: bool, most: int, check: Callable[[], bool]) -> None:
        super().__init__()
        self._watch, self._elsewhere, self._most, self._check = watch, elsewhere, most, check

    def suggest(self, trial_id: str) -> Any:
        if (self._watch.is_idle and self._check()) or self._watch.is_over:
            return Searcher.FINISHED
        start = self._watch.take(self._most)
        return start and {**start, "job": ray.put(start["job"]), "elsewhere": self._elsewhere}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        pass

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


class UnitOrder(_NotKept, FIFOScheduler):  # type: ignore[misc]  # ray is not typed
    """Starts units in the order of the queue. Tune's own looks through all trials for the next one at every step."""

    def choose_trial_to_run(self, tune_controller: Any) -> None:
        return None


class UnitCallback(_NotKept, tune.Callback):  # type: ignore[misc]  # ray is not typed
    """Passes what Tune tells of its trials on to the watch.

    Args:
        watch: follows the units.
        step: called before Tune's first step, so that Tune's own handler of SIGUSR1 is replaced.
        check: called after each step of Tune.
    """

    def __init__(self, watch: UnitWatch, step: Callable[[], None], check: Callable[[], object]) -> None:
        self._watch, self._step, self._check = watch, step, check

    def setup(self, **info: Any) -> None:
        self._step()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.started(trial.config["unit"])

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        self._watch.reported(trial.config["unit"], result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.completed(trial.config["unit"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._watch.died(trial.config["unit"], _error_text(trial))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._check()


class UnitStopper(_NotKept, tune.Stopper):  # type: ignore[misc]  # ray is not typed
    """Ends all units when the watch says so."""

    def __init__(self, watch: UnitWatch) -> None:
        self._watch = watch

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._watch.ends


def request(config: Mapping[str, Any]) -> Any:
    """What Tune asks of Ray for a start of a unit, which must not be on some machines."""
    if not config["avoid"]:
        return tune.PlacementGroupFactory([config["bundle"]])
    others = [{_NODE_ID: f"!in({','.join(config['avoid'])})"}]
    return tune.PlacementGroupFactory([config["bundle"]], bundle_label_selector=others)


def _error_text(trial: Any) -> str:
    """The last error of a trial, as Tune keeps it in a file; empty if it cannot be read."""
    try:
        return Path(trial.error_file).read_text()
    except (OSError, TypeError):
        return ""


@contextmanager
def memory_kills_end_one_worker() -> Iterator[None]:
    """Let Tune see the end of a worker for want of memory as the end of that worker.

    It would take Ray's error for a mistake of its own, and end all units. Tune has nothing public to say otherwise.

    Raises:
        GoalError: this is another version of Ray than the one that this was written for.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager

    if not ray.__version__.startswith(f"{RAY_VERSIONS}.") or not hasattr(RayActorManager, "_actor_task_failed"):
        raise GoalError(
            f"goal-sweep knows Ray {RAY_VERSIONS}, and Ray {ray.__version__} is installed: there one worker that is "
            f"ended for want of memory would end the launch. Install ray=={RAY_VERSIONS}.*"
        )
    original = RayActorManager._actor_task_failed

    def task_failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, RayError) and not isinstance(exception, RayActorError | RayTaskError):
            exception = RayActorError(error_msg=f"{type(exception).__name__}: {exception}")
        original(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = task_failed
    try:
        yield
    finally:
        RayActorManager._actor_task_failed = original
