"""Start Ray on this machine or join a cluster, and leave it again, also when it has died."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self

import goal_core
import runners
import sweeps
from goal_core.basics.errors import DeviceError, GoalError, UnfinishedError, first_line
from runners.execution.avoided import AvoidedMachines
from runners.execution.capacity import Machine, Resources, check_possible, has_autoscaler
from runners.execution.head_watch import HeadWatch, end_children, end_process
from runners.execution.joining import TOKEN, TOKEN_PATH, reach
from runners.execution.private_folder import private_folder

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
# In a Ray job, this process passes on variables that the job was given. Ray would call that a conflict.
IN_JOB = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
_JOB_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
MAX_RESTARTS = 3
"""How often a command restarts itself after its local Ray died."""
_RESTARTS = "GOAL_SWEEP_RELAUNCHES"
AGAIN = "run the same command again to continue"
HEAD_LOST = "Ray's head process does not answer"


class RayLostError(UnfinishedError):
    """Ray has no machine left: its node process was killed, or the whole cluster is gone."""


class RaySession:
    """A running Ray: a local one, or a cluster that was joined.

    Args:
        address: the cluster's address; None starts a local Ray on this machine.
        resources: the resources of each unit.
        before_restart: called before this process is replaced or ended although its main thread hangs in a call to Ray.
        wait: seconds to wait on a cluster without room for a unit; None waits as long as it takes.
        ship_code: send this machine's code of goal-sweep to the cluster's workers.
    """

    def __init__(
        self,
        address: str | None,
        resources: Resources,
        before_restart: Callable[[], None] = lambda: None,
        *,
        wait: float | None = None,
        ship_code: bool = False,
    ) -> None:
        self.address, self.resources, self._before_restart = address, resources, before_restart
        self.wait, self._ship_code = wait, ship_code
        self._avoided: AvoidedMachines | None = None
        self.grows = False
        """Whether the cluster adds machines by itself; known once it is joined."""

    def __enter__(self) -> Self:
        """Start or join Ray, and check that a unit may fit.

        Raises:
            DeviceError: no machine of the cluster has the resources of a unit, and none may come.
            UnfinishedError: the cluster does not answer, or Ray did not start.
            GoalError: the cluster refuses this machine, or another user has made the folder of Ray's files.
            KeyboardInterrupt: SIGTERM came while Ray started.
        """
        settings = QUIET | (IN_JOB | reach(self.address) if self.address else LOOPBACK | _own_token())
        os.environ.update({key: value for key, value in settings.items() if key not in os.environ})
        files = None if self.address else str(_private_folder() / "ray")
        # Batch systems may signal every process of a job. Ray's own inherit this mask and go on while the cells save.
        signal.pthread_sigmask(signal.SIG_BLOCK, _JOB_SIGNALS)
        try:
            import ray

            logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
            ray.init(
                address=self.address or "local",
                log_to_driver=False,
                logging_level="error",
                include_dashboard=False if self.address is None else None,
                _temp_dir=files,
                **({"runtime_env": self._environment()} if self.address else {}),
            )
        except SystemExit:  # from Ray's own handler of SIGTERM
            raise KeyboardInterrupt from None
        except Exception as error:  # Ray raises bare exceptions too, as when a node process does not come up in time
            if self.address is None:  # one of its processes was killed while it started
                raise RayLostError(f"Ray did not start on this machine: {first_line(error)}; {AGAIN}") from error
            raise GoalError(f"cannot join Ray at {self.address}: {' '.join(str(error).split())}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _JOB_SIGNALS)
        try:
            self._check_fit([Machine.of_ray(node) for node in ray.nodes() if node["Alive"]])
        except BaseException:
            _shut_down()
            raise
        self.watch = HeadWatch(
            ray.get_runtime_context().gcs_address,
            LOCAL_HEAD_S if self.address is None else CLUSTER_HEAD_S,
            self._leave_stuck,
        )
        self.watch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        """Leave Ray. A local Ray ends, and its workers with it."""
        if not self.watch.lost:
            _shut_down()
        elif self.address is None:
            # A shutdown would wait for the head process; the machine's part of Ray is this process's children.
            end_children()
        self.watch.stop()

    def _leave_stuck(self) -> None:
        """Leave a main thread that hangs in a call to Ray: start the command again, or end the process."""
        lost = RayLostError(f"{HEAD_LOST}; {AGAIN}")
        if self.address is None:
            end_children()
        with contextlib.suppress(OSError):
            self._before_restart()  # else the same command, on another machine, would be refused until this one expires
        if self.address is None:
            with contextlib.suppress(RayLostError, OSError):
                restart_command(lost)
        end_process(f"error: {lost}", lost.status)

    def _check_fit(self, machines: Sequence[Machine]) -> None:
        if self.address is None:
            if not any(machine.fits(self.resources) for machine in machines):
                has = "; ".join(machine.describe() for machine in machines)
                raise DeviceError(f"a unit needs {self.resources} (resources.*), but this machine has {has}")
            return
        import ray
        from ray.experimental.internal_kv import _internal_kv_get

        status = second = None
        with contextlib.suppress(Exception):  # of an interface that may change; then the machines alone decide
            status = _internal_kv_get("__autoscaling_status")
            place = ray._raylet.GCS_AUTOSCALER_STATE_NAMESPACE
            second = _internal_kv_get(ray._raylet.GCS_AUTOSCALER_V2_ENABLED_KEY, namespace=place)
        self.grows = has_autoscaler(status, second == b"1")
        check_possible(machines, self.resources, grows=self.grows, wait=self.wait)

    def avoided(self, say: Callable[[str], None]) -> AvoidedMachines:
        """The machines that this session leaves alone."""
        if self._avoided is None:
            self._avoided = AvoidedMachines(self.resources, say)
        return self._avoided

    def _environment(self) -> dict[str, Any]:
        """What the workers of a cluster get from this machine: some variables and, if asked, the code."""
        packages = [str(Path(str(package.__file__)).parent) for package in (goal_core, sweeps, runners)]
        return {"env_vars": _passed_on()} | ({"py_modules": packages} if self._ship_code else {})


def _private_folder() -> Path:
    """Where a local Ray puts its files: Ray lets everybody write to the folder of its sockets."""
    return private_folder(Path(os.environ.get("RAY_TMPDIR", "/tmp")) / f"goal-sweep-{os.geteuid()}")


def _shut_down() -> None:
    """Leave Ray without garbage collection.

    What Tune leaves behind holds references to Ray's objects. If another thread collects one while Ray shuts down, Ray
    ends the process with status 1.
    """
    import ray

    gc.collect()
    gc.disable()
    try:
        ray.shutdown()
    finally:
        gc.enable()


def _own_token() -> dict[str, str]:
    """A fresh token for a local Ray, unless the user has set one.

    Otherwise Ray writes one to the home directory, readable by all users of the machine. It goes to Ray's processes
    through their environment, which only the user can read.
    """
    written = Path("~/.ray/auth_token").expanduser()
    with contextlib.suppress(OSError):  # an earlier launch may have let Ray write it
        if written.stat().st_mode & 0o077:
            written.chmod(0o600)
    return {} if {TOKEN, TOKEN_PATH} & os.environ.keys() else {TOKEN: secrets.token_hex(32)}


def _passed_on() -> dict[str, str]:
    """Environment variables that workers on other machines need and Tune does not forward; their values stay hidden."""
    return {key: value for key, value in os.environ.items() if key.startswith(("AWS_ENDPOINT", "GOAL_"))}


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
