"""Units as Ray Tune trials. The only module that imports ray.

Tune schedules, places and restarts. It is not asked to remember: what is done is in the store, so every launch hands
Tune a fresh list of the units that are left, and none of Tune's own state is ever restored.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from goal_core.errors import DeviceError, GoalError
from goal_core.training import TrainingEvent
from runners.execution.worker import UnitJob, run_unit

# Read by ray when it is imported: our own display instead of Tune's, no csv/json/tensorboard loggers (they write every
# report to disk again), Ctrl-C as an exception in the driver, and no token file or usage report behind the user's back.
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own memory killer would take the whole experiment down with one trial; the kernel kills one worker.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
NODE_CHECK_S = 10.0
"""Seconds between two looks at whether any machine of Ray's is left."""
WORKER_DEATHS = 8
"""Times one unit's worker may die without an error of its own (a lost node, a kill) before the unit is given up."""


MAX_RESTARTS = 3
"""Times a command starts itself anew after its local Ray died."""
_RESTARTS = "GOAL_SWEEP_RELAUNCHES"


class RayLostError(GoalError):
    """No machine of Ray's is left: its node process was killed, or the whole cluster went away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one unit occupies."""

    cpus: int
    gpus: float


class UnitObserver(Protocol):
    """What the driver is told while units run, in its own process."""

    def started(self, job: UnitJob) -> None:
        """A worker has begun a unit."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """What happened to the trainings of a unit."""

    def lost(self, job: UnitJob, error: str) -> None:
        """A unit's worker died.

        Args:
            job: the unit.
            error: what it said last, when it is not started again; empty when it is.
        """

    @property
    def stopping(self) -> bool:
        """Whether every unit should be stopped."""


class RayUnits:
    """A running Ray, local or joined, that trains units.

    Args:
        address: a cluster's address, or None for a Ray of our own on this machine.
        resources: what each unit occupies.
    """

    def __init__(self, address: str | None, resources: Resources) -> None:
        self.address, self.resources = address, resources

    def __enter__(self) -> RayUnits:
        """Start or join Ray, and check that a unit fits somewhere.

        Raises:
            DeviceError: no node of the cluster has what a unit needs.
            GoalError: the cluster cannot be reached.
        """
        os.environ.update({key: value for key, value in QUIET.items() if key not in os.environ})
        import ray

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        try:
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if self.address is None else None,
                **({"runtime_env": {"env_vars": _passed_on()}} if self.address else {}),
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise GoalError(
                f"cannot reach Ray at {self.address or 'this machine'}: {str(error).splitlines()[0]}"
            ) from error
        try:
            self._check_fit([node["Resources"] for node in ray.nodes() if node["Alive"]])
        except DeviceError:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave Ray; one of our own ends with it, and its workers too."""
        import ray

        ray.shutdown()

    def _check_fit(self, nodes: list[dict[str, float]]) -> None:
        need = self.resources
        if any(node.get("CPU", 0) >= need.cpus and node.get("GPU", 0) >= need.gpus for node in nodes):
            return
        most = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in ("CPU", "GPU")}
        raise DeviceError(
            f"a unit asks for {need.cpus} CPU and {need.gpus:g} GPU (resources.cpus, resources.gpus), "
            f"but no machine has both: the largest has {most['CPU']:g} CPU and {most['GPU']:g} GPU"
        )

    def run(self, jobs: Sequence[UnitJob], observer: UnitObserver) -> None:
        """Train units; returns when each is done or given up.

        Args:
            jobs: the units; Tune starts them in this order, as resources allow.
            observer: told of starts, events and losses.

        Raises:
            RayLostError: Ray has no machine left; Tune itself would wait for one forever.
        """
        from ray import tune

        # Tune writes its own bookkeeping somewhere; nothing reads it again.
        with tempfile.TemporaryDirectory(prefix="goal-sweep-tune-") as scratch, _terminate_like_interrupt():
            tune.Tuner(
                tune.with_resources(_trial, {"cpu": self.resources.cpus, "gpu": self.resources.gpus}),
                param_space={"unit": tune.grid_search(list(range(len(jobs)))), "jobs": tuple(jobs)},
                tune_config=tune.TuneConfig(
                    trial_name_creator=_trial_name,
                    trial_dirname_creator=_trial_name,
                    # A CUDA context is not trusted to come back clean; a CPU worker saves seconds of imports.
                    reuse_actors=self.resources.gpus == 0,
                ),
                run_config=tune.RunConfig(
                    name="units",
                    storage_path=scratch,
                    verbose=0,
                    stop=_stopper(observer),
                    failure_config=tune.FailureConfig(max_failures=WORKER_DEATHS),
                    callbacks=[_observer_callback(jobs, observer)],
                ),
            ).fit()


def _trial(config: dict[str, Any]) -> None:
    """Body of a trial, in a worker: train the unit and report its events."""
    from ray import tune

    run_unit(config["jobs"][config["unit"]], lambda events: tune.report({"events": list(events)}))
    tune.report({"events": []})


def _trial_name(trial: Any) -> str:
    return f"unit-{trial.config['unit']:04d}"


def _observer_callback(jobs: Sequence[UnitJob], observer: UnitObserver) -> Any:
    from ray import tune

    checked = time.monotonic()

    class Observe(tune.Callback):  # type: ignore[misc]  # ray is not typed
        def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            observer.started(jobs[trial.config["unit"]])

        def on_trial_result(
            self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
        ) -> None:
            observer.events(result.get("events", ()))

        def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            observer.lost(jobs[trial.config["unit"]], _error_line(trial))

        def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
            observer.lost(jobs[trial.config["unit"]], "")

        def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
            nonlocal checked
            if time.monotonic() - checked > NODE_CHECK_S:
                _check_alive()
                checked = time.monotonic()

        def __reduce__(self) -> tuple[Any, tuple[()]]:
            return tune.Callback, ()  # Tune pickles callbacks into a file of its own that nobody reads

    return Observe()


def _check_alive() -> None:
    import ray

    if not any(node["Alive"] for node in ray.nodes()):
        raise RayLostError("Ray has no machine left to train on; the same command continues from the last epochs")


def _stopper(observer: UnitObserver) -> Any:
    from ray import tune
    from ray.tune.stopper import NoopStopper

    class Stop(tune.Stopper):  # type: ignore[misc]  # ray is not typed
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return observer.stopping

        def __reduce__(self) -> tuple[Any, tuple[()]]:
            return NoopStopper, ()  # as the callback above

    return Stop()


def _error_line(trial: Any) -> str:
    try:
        lines = [line for line in Path(trial.error_file).read_text().splitlines() if line.strip()]
    except (OSError, TypeError):
        lines = []
    return lines[-1].strip() if lines else "its worker died"


def _passed_on() -> dict[str, str]:
    """Environment that workers on other machines need and Tune does not forward; its values appear nowhere else."""
    return {key: value for key, value in os.environ.items() if key.startswith(("AWS_ENDPOINT", "GOAL_"))}


@contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """Within the block SIGTERM raises KeyboardInterrupt, so that a batch system's stop ends like Ctrl-C."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def restart_command(error: Exception) -> NoReturn:
    """Replace this process by the same command, started anew.

    When the node process of a local Ray is killed, the Ray inside the driver cannot be used again: native threads end
    the process at some later moment. The store holds everything that a new launch needs, so the driver becomes one.
    `--force` is left out, for what it asks for has been set aside already.

    Args:
        error: why; raised instead when the command has started itself anew often enough.
    """
    count = int(os.environ.get(_RESTARTS, "0"))
    if count >= MAX_RESTARTS:
        raise error
    os.environ[_RESTARTS] = str(count + 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--force")])
