"""Run units as Ray Tune trials.

Tune schedules, places and restarts trials. It does not have to remember anything: the store knows what is done, so
every launch gives Tune a fresh list of the remaining units and never restores Tune's own state.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from goal_core.errors import first_line
from goal_core.training import TrainingEvent
from runners.execution.head_watch import HeadWatch
from runners.execution.ray_session import AGAIN, HEAD_LOST, RayLostError, RaySession
from runners.execution.signs_of_life import SignsOfLife, count_attempts
from runners.execution.worker import UnitJob, run_unit

NODE_CHECK_S = 10.0
"""Seconds between checks that Ray has a machine left."""
IDLE_DEATHS = 8
"""How often in a row a unit's worker may die before it begins an attempt; then this launch gives the unit up."""
NODE_LOSS_S = 60.0
"""Seconds within which Ray notices that a machine is lost."""


class _NoRay(BaseException):
    """As `RayLostError`, within Tune, which cleans up after an `Exception` and would wait for what is lost."""


class UnitObserver(Protocol):
    """Called in the driver's process while units run."""

    def started(self, job: UnitJob) -> None:
        """Called when a worker has begun a unit."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Called with what happened to the trainings of a unit."""

    def ended(self, job: UnitJob) -> None:
        """Called when a unit has ended, by itself or because it was stopped."""

    def step(self) -> None:
        """Called several times a second, in the main thread. Signal handlers set here stay in place."""

    def lost(self, job: UnitJob, error: str) -> None:
        """Called when a unit's worker died.

        Args:
            job: the unit.
            error: the worker's last error line if it will not be restarted; empty if it will.
        """

    def note(self, line: str) -> None:
        """Called with a line for the user."""

    @property
    def stopping(self) -> bool:
        """Whether all units should stop."""


class RayUnits(RaySession):
    """A running Ray that trains units."""

    def run(self, jobs: Sequence[UnitJob], observer: UnitObserver) -> None:
        """Train units, and return when each of them is done or given up, or the observer stops them.

        Args:
            jobs: the units; Tune starts them in this order, as resources allow.
            observer: receives starts, events and losses.

        Raises:
            RayLostError: Ray has no machine left, for which Tune itself would wait forever, or Ray failed.
        """
        from ray import tune
        from ray.exceptions import RayError

        # Tune must write its bookkeeping somewhere; nothing reads it.
        with tempfile.TemporaryDirectory(prefix="goal-sweep-tune-") as scratch, _no_handlers_of_tune():
            tuner = tune.Tuner(
                tune.with_resources(_trial, {"cpu": self.resources.cpus, "gpu": self.resources.gpus}),
                param_space={"unit": tune.grid_search(list(range(len(jobs)))), "jobs": tuple(jobs)},
                tune_config=tune.TuneConfig(
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                    # Reusing a CPU worker saves seconds of imports; a used CUDA context may not be clean.
                    reuse_actors=self.resources.gpus == 0,
                ),
                run_config=tune.RunConfig(
                    name="units",
                    storage_path=scratch,
                    verbose=0,
                    stop=_stopper(observer),
                    # The store decides who pays for a death, so Tune restarts a dead worker however often it died.
                    failure_config=tune.FailureConfig(max_failures=-1),
                    callbacks=[_observer_callback(jobs, observer, self.watch)],
                ),
            )
            try:
                tuner.fit()
            except _NoRay as gone:
                raise RayLostError(f"{gone}; {AGAIN}") from None
            except (RayError, tune.TuneError) as error:
                raise RayLostError(f"Ray stopped: {first_line(error)}; {AGAIN}") from error


def _trial(config: dict[str, Any]) -> None:
    """The body of a trial, in a worker: train the unit and report its events."""
    import ray
    from ray import tune

    node = ray.get_runtime_context().get_node_id()
    run_unit(
        config["jobs"][config["unit"]],
        lambda events: tune.report({"events": list(events)}),
        node=node,
        node_lost=lambda other: bool(other) and other != node and _is_lost(other),
    )
    tune.report({"events": []})


def _is_lost(node: str) -> bool:
    """Whether a machine is gone. Ray may notice that a while after it has restarted the machine's trials."""
    import ray

    deadline = time.monotonic() + NODE_LOSS_S
    while any(one["NodeID"] == node and one["Alive"] for one in ray.nodes()):
        if time.monotonic() > deadline:
            return False
        time.sleep(1.0)
    return True


def _trial_name(trial: Any) -> str:
    return f"unit-{trial.config['unit']:04d}"


def _observer_callback(jobs: Sequence[UnitJob], observer: UnitObserver, head: HeadWatch) -> Any:
    from ray import tune

    checked = time.monotonic()
    signs = SignsOfLife(observer.note)
    begun: dict[int, int] = {}
    idle: Counter[int] = Counter()

    def job_of(trial: Any) -> UnitJob:
        job: UnitJob = jobs[trial.config["unit"]]
        return job

    class Observe(tune.Callback):  # type: ignore[misc]  # ray is not typed
        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            signs.begin(job_of(trial))
            begun.setdefault(trial.config["unit"], count_attempts(job_of(trial)))
            observer.started(job_of(trial))

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            observer.events(result.get("events", ()))

        def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            signs.end(job_of(trial))
            observer.ended(job_of(trial))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            signs.end(job_of(trial))
            observer.lost(job_of(trial), _error_line(trial))

        def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
            observer.step()

        def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            unit, job = trial.config["unit"], job_of(trial)
            signs.end(job)
            observer.lost(job, "")
            attempts = count_attempts(job)
            idle[unit] = idle[unit] + 1 if attempts == begun.get(unit, attempts) else 0
            begun[unit] = attempts
            if idle[unit] >= IDLE_DEATHS - 1:
                trial.max_failures = trial.num_failures  # the next failure is the last

        def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
            nonlocal checked
            signs.check()
            if head.lost:
                raise _NoRay(HEAD_LOST)
            if time.monotonic() - checked > NODE_CHECK_S and head.answers():
                _check_alive()
                checked = time.monotonic()

        def __reduce__(self) -> tuple[Any, tuple[()]]:
            return tune.Callback, ()  # Tune pickles its callbacks into a file that nothing reads

    return Observe()


def _check_alive() -> None:
    import ray

    if not any(node["Alive"] for node in ray.nodes()):
        raise _NoRay("Ray has no machine left to train on")


def _stopper(observer: UnitObserver) -> Any:
    from ray import tune
    from ray.tune.stopper import NoopStopper

    class Stop(tune.Stopper):  # type: ignore[misc]  # ray is not typed
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return observer.stopping

        def __reduce__(self) -> tuple[Any, tuple[()]]:
            return NoopStopper, ()  # for the same reason as in the callback above

    return Stop()


def _error_line(trial: Any) -> str:
    try:
        lines = [line for line in Path(trial.error_file).read_text().splitlines() if line.strip()]
    except (OSError, TypeError):
        lines = []
    return lines[-1].strip() if lines else "its worker died"


@contextmanager
def _no_handlers_of_tune() -> Iterator[None]:
    """Keep Tune from handling signals: its own handler for SIGUSR1 would end the units before they have saved."""
    from ray.tune import tune as module

    original = getattr(module, "_setup_signal_catching", None)
    # If a later version of Tune has no such function, the handlers that `UnitObserver.step` sets replace Tune's.
    if original is not None:
        module._setup_signal_catching = threading.Event
    try:
        yield
    finally:
        if original is not None:
            module._setup_signal_catching = original
