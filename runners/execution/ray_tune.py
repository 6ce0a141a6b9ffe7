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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from goal_core.errors import DeviceError, GoalError, UnfinishedError, first_line
from goal_core.training import TrainingEvent
from runners.execution.head_watch import HeadWatch, end_children, end_process
from runners.execution.signs_of_life import SignsOfLife, count_attempts
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
LOCAL_HEAD_S, CLUSTER_HEAD_S = 3.0, 35.0
"""Seconds without an answer after which Ray's head process is lost; after 60 Ray ends the driver with status 1."""
# Ray's switch to listen on the loopback interface only, on every system and whatever its name says: without it, the
# services of a local Ray accept connections from the network. `_node_ip_address="127.0.0.1"` does not do it, because
# Ray replaces that address by the machine's own.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_TOKEN, _TOKEN_PATH = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
NODE_CHECK_S = 10.0
"""Seconds between checks that Ray has a machine left."""
IDLE_DEATHS = 8
"""How often in a row a unit's worker may die before it begins an attempt; then this launch gives the unit up."""
NODE_LOSS_S = 60.0
"""Seconds within which Ray notices that a machine is lost."""

_JOB_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
MAX_RESTARTS = 3
"""How often a command restarts itself after its local Ray died."""
_RESTARTS = "GOAL_SWEEP_RELAUNCHES"


_AGAIN = "run the same command again to continue"
_HEAD_LOST = "Ray's head process does not answer"


class RayLostError(UnfinishedError):
    """Ray has no machine left: its node process was killed, or the whole cluster is gone."""


class _NoRay(BaseException):
    """As `RayLostError`, within Tune, which cleans up after an `Exception` and would wait for what is lost."""


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


class RayUnits:
    """A running Ray that trains units: a local one, or a cluster that was joined.

    Args:
        address: the cluster's address; None starts a local Ray on this machine.
        resources: the resources of each unit.
        before_restart: called before this process is replaced although its main thread hangs in a call to Ray.
    """

    def __init__(
        self, address: str | None, resources: Resources, before_restart: Callable[[], None] = lambda: None
    ) -> None:
        self.address, self.resources, self._before_restart = address, resources, before_restart

    def __enter__(self) -> RayUnits:
        """Start or join Ray, and check that some machine has room for a unit.

        Raises:
            DeviceError: no machine of the cluster has the resources of a unit.
            GoalError: the cluster cannot be reached.
            KeyboardInterrupt: SIGTERM came while Ray started.
        """
        settings = QUIET if self.address else {**QUIET, **LOOPBACK, **_own_token()}
        os.environ.update({key: value for key, value in settings.items() if key not in os.environ})
        import ray

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        # Batch systems may signal every process of a job. Ray's own inherit this mask and go on while the cells save.
        signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_SIGNALS)
        try:
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if self.address is None else None,
                **({"runtime_env": {"env_vars": _passed_on()}} if self.address else {}),
            )
        except SystemExit:  # from Ray's own handler of SIGTERM
            raise KeyboardInterrupt from None
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            if self.address is None:  # one of its processes was killed while it started
                raise RayLostError(f"Ray did not start on this machine: {first_line(error)}; {_AGAIN}") from error
            raise GoalError(f"cannot reach Ray at {self.address}: {first_line(error)}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _JOB_SIGNALS)
        try:
            self._check_fit([node["Resources"] for node in ray.nodes() if node["Alive"]])
        except BaseException:
            ray.shutdown()
            raise
        self._watch = HeadWatch(
            ray.get_runtime_context().gcs_address,
            LOCAL_HEAD_S if self.address is None else CLUSTER_HEAD_S,
            self._leave_stuck,
        )
        self._watch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave Ray. A local Ray ends, and its workers with it."""
        import ray

        if not self._watch.lost:
            ray.shutdown()
        elif self.address is None:
            # A shutdown would wait for the head process; the machine's part of Ray is this process's children.
            end_children()
        self._watch.stop()

    def _leave_stuck(self) -> None:
        """Leave a main thread that hangs in a call to Ray: start the command again, or end the process."""
        lost = RayLostError(f"{_HEAD_LOST}; {_AGAIN}")
        if self.address is None:
            end_children()
            with contextlib.suppress(RayLostError, OSError):
                self._before_restart()
                restart_command(lost)
        end_process(f"error: {lost}", lost.status)

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
                    callbacks=[_observer_callback(jobs, observer, self._watch)],
                ),
            )
            try:
                tuner.fit()
            except _NoRay as gone:
                raise RayLostError(f"{gone}; {_AGAIN}") from None
            except (RayError, tune.TuneError) as error:
                raise RayLostError(f"Ray stopped: {first_line(error)}; {_AGAIN}") from error


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
                raise _NoRay(_HEAD_LOST)
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
    print("Ray died on this machine; starting again from the last finished epochs", flush=True)
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *(word for word in sys.orig_argv[1:] if word != "--force")])
