"""Start Ray on this machine or join a cluster, and leave it again, also when it has died."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from goal_core.errors import DeviceError, GoalError, UnfinishedError, first_line
from runners.execution.head_watch import HeadWatch, end_children, end_process

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
_JOB_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
MAX_RESTARTS = 3
"""How often a command restarts itself after its local Ray died."""
_RESTARTS = "GOAL_SWEEP_RELAUNCHES"
AGAIN = "run the same command again to continue"
HEAD_LOST = "Ray's head process does not answer"


class RayLostError(UnfinishedError):
    """Ray has no machine left: its node process was killed, or the whole cluster is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The resources of one unit."""

    cpus: int
    gpus: float


class RaySession:
    """A running Ray: a local one, or a cluster that was joined.

    Args:
        address: the cluster's address; None starts a local Ray on this machine.
        resources: the resources of each unit.
        before_restart: called before this process is replaced or ended although its main thread hangs in a call to Ray.
    """

    def __init__(
        self, address: str | None, resources: Resources, before_restart: Callable[[], None] = lambda: None
    ) -> None:
        self.address, self.resources, self._before_restart = address, resources, before_restart

    def __enter__(self) -> Self:
        """Start or join Ray, and check that some machine has room for a unit.

        Raises:
            DeviceError: no machine of the cluster has the resources of a unit.
            GoalError: the cluster cannot be reached.
            KeyboardInterrupt: SIGTERM came while Ray started.
        """
        settings = QUIET if self.address else {**QUIET, **LOOPBACK, **_own_token()}
        os.environ.update({key: value for key, value in settings.items() if key not in os.environ})
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
                **({"runtime_env": {"env_vars": _passed_on()}} if self.address else {}),
            )
        except SystemExit:  # from Ray's own handler of SIGTERM
            raise KeyboardInterrupt from None
        except Exception as error:  # Ray raises bare exceptions too, as when a node process does not come up in time
            if self.address is None:  # one of its processes was killed while it started
                raise RayLostError(f"Ray did not start on this machine: {first_line(error)}; {AGAIN}") from error
            raise GoalError(f"cannot reach Ray at {self.address}: {first_line(error)}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _JOB_SIGNALS)
        try:
            self._check_fit([node["Resources"] for node in ray.nodes() if node["Alive"]])
        except BaseException:
            ray.shutdown()
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
        import ray

        if not self.watch.lost:
            ray.shutdown()
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

    def _check_fit(self, nodes: list[dict[str, float]]) -> None:
        need = self.resources
        if any(node.get("CPU", 0) >= need.cpus and node.get("GPU", 0) >= need.gpus for node in nodes):
            return
        machines = {f"{node.get('CPU', 0):g} CPU and {node.get('GPU', 0):g} GPU" for node in nodes}
        raise DeviceError(
            f"a unit needs {need.cpus} CPU and {need.gpus:g} GPU (resources.cpus, resources.gpus), but no machine has "
            f"both; they have {'; '.join(sorted(machines)) or 'nothing'}"
        )


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
