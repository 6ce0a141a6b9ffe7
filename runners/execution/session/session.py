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
from typing import Self

import psutil

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.execution.capacity import Machine, Resources, check_here, check_possible
from goal_sweep.runners.execution.session.joining import MODE, TOKEN, TOKEN_PATH, reach
from goal_sweep.runners.execution.session.node import (
    PATIENT,
    SAVING,
    NodeFailedError,
    RayNode,
    is_alive,
    private_folder,
)
from goal_sweep.runners.execution.session.supervisor import AGAIN, ray_is_ours, start_again
from goal_sweep.runners.execution.session.watch import RayWatch, end_process

# ray reads these when it is imported. They replace Tune's display by ours, switch off the csv, json and tensorboard
# loggers (which write every report to disk again), make Ctrl-C an exception in the driver, and prevent the usage report
# that the user did not ask for. Nothing reads the state of its trials that Tune writes to disk, so it is written once.
QUIET = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "inf",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_LONG_S = 86400
ALONE = {
    # Ray's switch to listen on the loopback interface only, whatever its name says: without it, the services of a local
    # Ray accept connections from the network.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray's memory monitor would end a worker that the kernel might leave alone; the kernel ends only one.
    "RAY_memory_monitor_refresh_ms": "0",
    # No network lies between the processes of one machine. One that is silent is slow, or suspended.
    "RAY_health_check_initial_delay_ms": f"{_LONG_S}000",
    "RAY_health_check_timeout_ms": f"{_LONG_S}000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(_LONG_S),
    "RAY_grpc_keepalive_timeout_ms": f"{_LONG_S}000",
    "RAY_grpc_client_keepalive_timeout_ms": f"{_LONG_S}000",
}
"""Variables of a Ray on this machine alone."""
# In a Ray job, this process passes on variables that the job was given. Ray would call that a conflict.
IN_JOB = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
LOOPBACK = "127.0.0.1"


class RayLostError(UnfinishedError):
    """Ray has no machine left: its node process was killed, or the whole cluster is gone."""


class RaySession:
    """A running Ray: a local one, or a cluster that was joined.

    Args:
        address: the cluster's address; None starts a local Ray on this machine.
        resources: the resources of each unit.
        before_restart: called before this process is replaced or ended although its main thread hangs in a call to Ray.
        grows: whether the cluster adds machines by itself, so that one without a machine that is large enough is waited
            for.
    """

    def __init__(
        self,
        address: str | None,
        resources: Resources,
        before_restart: Callable[[], None] = lambda: None,
        *,
        grows: bool = False,
    ) -> None:
        self.address, self.resources, self._before_restart = address, resources, before_restart
        self._grows = grows
        self._node: RayNode | None = None
        self.watch = RayWatch(lambda: True, None, self._leave_stuck)
        """Started when there is something to watch."""

    def __enter__(self) -> Self:
        """Start or join Ray, and check that a unit may fit.

        Raises:
            DeviceError: no machine has the resources of a unit, and none may come.
            UnfinishedError: the cluster does not answer, or Ray does not start.
            GoalError: the cluster refuses this machine, or another user has made the folder of Ray's files.
            KeyboardInterrupt: SIGTERM came while Ray started.
        """
        if self.address is None:
            check_here(self.resources)
        settings = QUIET | (IN_JOB | reach(self.address) if self.address else PATIENT | ALONE | {MODE: "token"})
        if self.address is None and not {TOKEN, TOKEN_PATH} & os.environ.keys():
            # Ray's processes get it through their environment. Otherwise Ray writes one that all users can read.
            settings[TOKEN] = secrets.token_hex(32)
        os.environ.update({key: value for key, value in settings.items() if key not in os.environ})
        try:
            if self.address is None:
                address, node = self._start()
                ray_is_ours()
                self._begin_watch(node.is_running, None)  # to join a Ray that dies meanwhile would take an hour
                self._join(address)
            else:
                self._join(self.address)
                import ray

                self._begin_watch(_node_of_this_machine(), ray.get_runtime_context().gcs_address)
            self._check_fit(self.machines())
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin_watch(self, is_running: Callable[[], bool], head: str | None) -> None:
        self.watch = RayWatch(is_running, head, self._leave_stuck)
        self.watch.start()

    def __exit__(self, *exc: object) -> None:
        """Leave Ray. A local Ray ends, and its workers with it."""
        self.watch.stop()
        self._leave(connected=not self.watch.lost)

    def _start(self) -> tuple[str, RayNode]:
        """Start Ray's processes on this machine. Returns their address, and the node."""
        # Ray lets everybody write to the folder of its sockets.
        folder = private_folder(Path(os.environ.get("RAY_TMPDIR", "/tmp")) / f"goal-sweep-{os.geteuid()}")
        self._node = RayNode(folder / f"start-{os.getpid()}.log", folder / "ray", {})
        try:
            return self._node.start_head(LOOPBACK), self._node
        except NodeFailedError as error:
            raise UnfinishedError(f"{error}; {AGAIN}") from error

    def _join(self, address: str) -> None:
        # Ray would answer the signals with which batch systems ask to save, while it is joined.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SAVING)
        try:
            import ray

            logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
            environment = {"runtime_env": {"env_vars": _passed_on()}} if self.address else {}
            ray.init(address=address, log_to_driver=False, logging_level="error", **environment)
        except SystemExit:  # from Ray's own handler of SIGTERM
            raise KeyboardInterrupt from None
        except Exception as error:  # Ray raises bare exceptions too
            said = " ".join(str(error).split())
            if self.address is None:  # one of its processes was killed meanwhile
                raise RayLostError(f"Ray on this machine cannot be joined: {said}; {AGAIN}") from error
            raise GoalError(f"cannot join Ray at {self.address}: {said}") from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _leave(self, *, connected: bool = True) -> None:
        if connected and "ray" in sys.modules:  # or else a shutdown would wait for what is lost
            import ray

            # What Tune leaves behind holds references to Ray's objects. If another thread collects one while Ray shuts
            # down, Ray ends the process with status 1.
            gc.collect()
            gc.disable()
            try:
                ray.shutdown()
            finally:
                gc.enable()
        if self._node is not None:
            self._node.end()

    def _leave_stuck(self) -> None:
        """Leave a main thread that hangs in a call to Ray: start the command again, or end the process."""
        lost = RayLostError(f"{self.watch.lost}; {AGAIN}")
        if self._node is not None:
            self._node.end()
        with contextlib.suppress(OSError):
            self._before_restart()  # else the same command, on another machine, would be refused until this one expires
        if self.address is None:
            with contextlib.suppress(RayLostError, OSError):
                start_again(lost)
        end_process(f"error: {lost}", lost.status)

    def _check_fit(self, machines: Sequence[Machine]) -> None:
        if self.address is None:
            check_here(self.resources, machines[0])
        elif not self._grows:
            check_possible(machines, self.resources)

    def machines(self) -> list[Machine]:
        """The machines alive."""
        import ray

        return [Machine.of_ray(node) for node in ray.nodes() if node["Alive"]]


def _passed_on() -> dict[str, str]:
    """Variables that the workers of a cluster get from this machine, and that Tune does not forward."""
    return {key: value for key, value in os.environ.items() if key.startswith(("AWS_ENDPOINT", "GOAL_"))}


def _node_of_this_machine() -> Callable[[], bool]:
    """Whether the cluster's node process that this process talks to lives, as far as one can see."""
    import ray

    own = ray.get_runtime_context().get_node_id()
    sockets = [f"--raylet_socket_name={node['RayletSocketName']}" for node in ray.nodes() if node["NodeID"] == own]
    for process in psutil.process_iter(["cmdline"]):
        if any(name in (process.info["cmdline"] or ()) for name in sockets):
            return lambda: is_alive(process)
    return lambda: True
