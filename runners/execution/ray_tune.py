"""Run units as Ray Tune trials. This is the only module that imports ray.

Tune schedules, places and restarts trials. It does not have to remember anything: the store knows what is done, so
every launch gives Tune a fresh list of the remaining units and never restores Tune's own state.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from goal_core.errors import DeviceError, GoalError, first_line
from goal_core.training import TrainingEvent
from runners.execution.worker import UnitJob, run_unit

# ray reads these when it is imported. They replace Tune's display by ours, switch off the csv, json and tensorboard
# loggers (which write every report to disk again), make Ctrl-C an exception in the driver, and prevent the usage report
# that the user did not ask for.
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's memory monitor would end the whole experiment for one trial; the kernel kills only one worker.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Ray's switch to listen on the loopback interface only, on every system and whatever its name says: without it, the
# services of a local Ray accept connections from the network. `_node_ip_address="127.0.0.1"` does not do it, because
# Ray replaces that address by the machine's own.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_TOKEN, _TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
NODE_CHECK_S = 10.0
"""Seconds between checks that Ray has a machine left."""
WORKER_DEATHS = 8
"""How often a unit's worker may die without an error of its own (a lost node, a kill) before the unit is given up."""


MAX_RESTARTS = 3
"""How often a command restarts itself after its local Ray died."""
_RESTARTS = "GOAL_SWEEP_RELAUNCHES"


class RayLostError(GoalError):
    """Ray has no machine left: its node process was killed, or the whole cluster is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of one unit."""

    cpus: int
    gpus: float


class UnitObserver(Protocol):
    """Called in the driver's process while units run."""

    def started(self, job: UnitJob) -> None:
        """Called when a worker has begun a unit."""

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Called with what happened to the trainings of a unit."""

    def lost(self, job: UnitJob, error: str) -> None:
        """Called when a unit's worker died.

        Args:
            job: the unit.
            error: the worker's last error line if it will not be restarted; empty if it will.
        """

    @property
    def stopping(self) -> bool:
        """Whether all units should stop."""


class RayUnits:
    """A running Ray that trains units: a local one, or a cluster that was joined.

    Args:
        address: the cluster's address; None starts a local Ray on this machine.
        resources: the resources of each unit.
    """

    def __init__(self, address: str | None, resources: Resources) -> None:
        self.address, self.resources = address, resources

    def __enter__(self) -> RayUnits:
        """Start or join Ray, and check that some machine has room for a unit.

        Raises:
            DeviceError: no machine of the cluster has the resources of a unit.
            GoalError: the cluster cannot be reached.
        """
        settings = QUIET if self.address else {**QUIET, **LOOPBACK, **_own_token()}
        os.environ.update({key: value for key, value in settings.items() if key not in os.environ})
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
            raise GoalError(f"cannot reach Ray at {self.address or 'this machine'}: {first_line(error)}") from error
        try:
            self._check_fit([node["Resources"] for node in ray.nodes() if node["Alive"]])
        except BaseException:
            ray.shutdown()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave Ray. A local Ray ends, and its workers with it."""
        import ray

        ray.shutdown()

    def _check_fit(self, nodes: list[dict[str, float]]) -> None:
        need = self.resources
        if any(node.get("CPU", 0) >= need.cpus and node.get("GPU", 0) >= need.gpus for node in nodes):
            return
        machines = {f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU" for node in nodes}
        raise DeviceError(
            f"a unit needs {need.cpus} CPU and {need.gpus:g} GPU (resources.cpus, resources.gpus), but no machine has "
            f"both; they have {'; '.join(sorted(machines)) or 'nothing'}"
        )

    def run(self, jobs: Sequence[UnitJob], observer: UnitObserver) -> None:
        """Train units, and return when each of them is done or given up.

        Args:
            jobs: the units; Tune starts them in this order, as resources allow.
            observer: receives starts, events and losses.

        Raises:
            RayLostError: Ray has no machine left. Tune itself would wait forever.
        """
        from ray import tune

        # Tune must write its bookkeeping somewhere; nothing reads it.
        with tempfile.TemporaryDirectory(prefix="goal-sweep-tune-") as scratch, _terminate_like_interrupt():
            tune.Tuner(
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
                    failure_config=tune.FailureConfig(max_failures=WORKER_DEATHS),
                    callbacks=[_observer_callback(jobs, observer)],
                ),
            ).fit()


def _trial(config: dict[str, Any]) -> None:
    """The body of a trial, in a worker: train the unit and report its events."""
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
            return tune.Callback, ()  # Tune pickles its callbacks into a file that nothing reads

    return Observe()


def _check_alive() -> None:
    import ray

    if not any(node["Alive"] for node in ray.nodes()):
        raise RayLostError("Ray has no machine left to train on; run the same command again to continue")


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


def _own_token() -> dict[str, str]:
    """A fresh token for a local Ray, unless the user has set one.

    Otherwise Ray writes one to the home directory, readable by all users of the machine. It goes to Ray's processes
    through their environment, which only the user can read.
    """
    written = Path("~/.ray/auth_token").expanduser()
    with contextlib.suppress(OSError):  # an earlier launch may have let Ray write it
        if written.stat().st_mode & 0o077:
            written.chmod(0o600)
    return {} if {_TOKEN, _TOKEN_PATH} & os.environ.keys() else {_TOKEN: secrets.token_hex(32)}


def _passed_on() -> dict[str, str]:
    """Environment variables that workers on other machines need and Tune does not forward; their values stay hidden."""
    return {key: value for key, value in os.environ.items() if key.startswith(("AWS_ENDPOINT", "GOAL_"))}


@contextlib.contextmanager
def _terminate_like_interrupt() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt within the block, so that a batch system's stop works like Ctrl-C."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def restart_command(error: Exception) -> NoReturn:
    """Replace this process by a new start of the same command.

    When the node process of a local Ray is killed, the driver cannot use Ray again: native threads would end the
    process at some later moment. The store holds everything that a new launch needs, so the driver starts one. It
    drops `--force`, because the old results have been set aside already.

    Args:
        error: the reason for the restart; raised when the command has restarted `MAX_RESTARTS` times already.
    """
    count = int(os.environ.get(_RESTARTS, "0"))
    if count >= MAX_RESTARTS:
        raise error
    os.environ[_RESTARTS] = str(count + 1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--force")])
