"""Ray on this machine or a cluster: what a unit needs and machines have, and how Ray is started, joined and left."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from goal_sweep.goal_core.basics.atomic import remove_left_behind
from goal_sweep.goal_core.basics.errors import DeviceError, GoalError, UnfinishedError
from goal_sweep.goal_core.basics.machine import process_tag
from goal_sweep.sweeps import ResourceConfig

# Read by ray when it is imported. They replace Tune's display by ours, switch off the csv, json and tensorboard loggers
# (which write every report to disk again), make Ctrl-C an exception in the driver, and prevent the usage report that
# the user did not ask for. Nothing reads the state of its trials that Tune writes to disk, so it is written once.
_QUIET = {
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
_ALONE = {
    # Ray's switch to listen on the loopback interface only, whatever its name says: without it, the services of a local
    # Ray accept connections from the network.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Ray's memory monitor would end a worker that the kernel might leave alone; the kernel ends only one.
    "RAY_memory_monitor_refresh_ms": "0",
    # Ray's own default of 15 leaves its workers hardly any time of a machine that others use too.
    "RAY_worker_niceness": "0",
    "RAY_AUTH_MODE": "token",
    # Tune gives its workers variables of their own, so those that Ray starts in advance would only take time.
    "RAY_prestart_worker_first_driver": "0",
}
"""Variables of a Ray on this machine alone."""
_ALLOCATOR = {
    # A step frees as much memory as the next one takes. Giving it back to the system between them costs a fifth of the
    # time of a small model's step on a CPU. 32 MiB is the largest threshold that glibc takes.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Variables of workers, for glibc's allocator."""
STARTING = (
    "RAY_raylet_start_wait_time_s",
    "RAY_gcs_server_request_timeout_seconds",
    "RAY_gcs_rpc_server_connect_timeout_s",
    "RAY_worker_register_timeout_seconds",
    "RAY_agent_register_timeout_ms",
    "RAY_raylet_client_num_connect_attempts",  # of a second each
)
"""Ray's limits for its own processes to start, in the unit that each ends in."""
_ANSWERING = (
    "RAY_gcs_server_port_wait_time_s",
    "RAY_py_gcs_connect_timeout_s",
    "RAY_gcs_rpc_server_reconnect_timeout_s",
    "RAY_grpc_keepalive_timeout_ms",
    "RAY_grpc_client_keepalive_timeout_ms",
    "RAY_health_check_initial_delay_ms",
    "RAY_health_check_timeout_ms",
)
"""Its limits for them to answer; on a cluster Ray's own stay, so that a lost machine is noticed."""
# In a Ray job, this process passes on variables that the job was given. Ray would call that a conflict.
_IN_JOB = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}
_CONNECT_S = 5.0
AGAIN = "the same command continues"


def patient(limits: Sequence[str], seconds: int) -> dict[str, str]:
    """Variables that set some of Ray's limits."""
    return {name: f"{seconds}{'000' * name.endswith('_ms')}" for name in limits}


class RaySession:
    """A running Ray: a local one, or a cluster that was joined. A context manager.

    Args:
        address: the cluster's, ``host:port`` of its head or ``auto``; None starts a local Ray.
        patience_s: seconds that the processes of a local Ray may take to start or to answer, on a busy machine.
    """

    def __init__(self, address: str | None, need: Resources, patience_s: int) -> None:
        self.address, self.need, self._patience_s = address, need, patience_s
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        """Start or join Ray.

        Raises `UnfinishedError` where the cluster does not answer or Ray does not start, else another `GoalError`.
        """
        if self.address is None:
            check_here(self.need)
            self._make_folder()
        else:
            check_address(self.address)
            _connect(self.address)
        # The token keeps other users of this machine away from the services of a local Ray.
        local = _ALONE | patient(STARTING + _ANSWERING, self._patience_s) | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
        for name, value in (_QUIET | _ALLOCATOR | (_IN_JOB if self.address else local)).items():
            os.environ.setdefault(name, value)
        try:
            with ThreadPoolExecutor(1) as beside:
                for name in ("ray.tune", "mlflow"):  # Tune imports it too; both take as long as Ray takes to start
                    beside.submit(import_module, name)
                self._init()
            if self.address is None:
                check_here(self.need, self.machines()[0])
        except BaseException:
            self.close()
            raise
        return self

    def _make_folder(self) -> None:
        """Make the folder of a local Ray, whose sockets Ray opens to everybody, for this user alone.

        Its name is short, because a socket's path has at most 107 bytes. Folders of earlier ones are removed.
        """
        parent = Path(os.environ.get("RAY_TMPDIR") or "/tmp")
        remove_left_behind(parent, "goal-ray-")
        self._folder = parent / f"goal-ray-{process_tag()}"
        try:
            self._folder.mkdir(mode=0o700)
        except OSError as error:
            why = f"{error.strerror}; RAY_TMPDIR names another"
            raise GoalError(f"cannot make {self._folder} for Ray: {why}") from error
        os.environ["RAY_TMPDIR"] = str(self._folder)

    def _init(self) -> None:
        import ray

        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)
        how: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        how |= {"address": "local", "include_dashboard": False}
        if self.address is not None:
            own = ("AWS_ENDPOINT", "GOAL_", "MALLOC_")
            passed_on = {name: value for name, value in os.environ.items() if name.startswith(own)}
            how |= {"address": self.address, "include_dashboard": None, "runtime_env": {"env_vars": passed_on}}
        try:
            ray.init(**how)
        except SystemExit:  # from Ray's own handler of SIGTERM
            raise KeyboardInterrupt from None
        except Exception as error:  # Ray raises bare exceptions too
            said = " ".join(str(error).split())[:300]
            if self.address is None:
                raise UnfinishedError(f"Ray does not start on {socket.gethostname()}: {said}; {AGAIN}") from error
            raise GoalError(f"cannot join the Ray cluster at {self.address}: {said}") from error

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave Ray. A local Ray ends, and its workers with it. A second call does nothing."""
        import ray

        # What Tune leaves behind holds references to Ray's objects. If another thread collects one while Ray shuts
        # down, Ray ends the process with status 1.
        gc.collect()
        gc.disable()
        try:
            ray.shutdown()
        finally:
            gc.enable()
        if self._folder is not None:
            os.environ["RAY_TMPDIR"] = str(self._folder.parent)
            shutil.rmtree(self._folder, ignore_errors=True)

    def machines(self) -> list[Machine]:
        """The machines alive. Raises `UnfinishedError` where Ray does not answer."""
        import ray

        try:
            return [Machine(id=one["NodeID"], resources=one["Resources"]) for one in ray.nodes() if one["Alive"]]
        except Exception as error:
            raise UnfinishedError(f"Ray does not answer any more; {AGAIN}") from error


def check_address(address: str) -> None:
    """Check that an address is written as that of a cluster is; whether one answers there shows later."""
    host, _, port = address.rpartition(":")
    if address != "auto" and ("://" in address or not host or not port.isdecimal() or not 0 < int(port[:6]) < 65536):
        raise GoalError(
            f"--address {address}: give host:port of the head process, as `ray start --head` prints it (its port is "
            "6379 unless --port says otherwise), not the dashboard's or the client's, or auto"
        )


def _connect(address: str) -> None:
    """Refuse an address at which nothing listens; Ray would try it for minutes."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        raise UnfinishedError(
            f"no Ray cluster at {address} ({why}): is its head running (`ray start --head --port={port}`), and may "
            "this machine reach the port? Then the same command continues"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a unit needs."""

    cpus: int
    gpus: float
    accelerator: str = ""
    """Kind of GPU as Ray names it, such as `A100`; empty for any."""

    @classmethod
    def of(cls, config: ResourceConfig) -> Resources:
        """As a sweep asks for them."""
        return cls(cpus=config.cpus, gpus=config.gpus, accelerator=config.accelerator)

    @property
    def bundle(self) -> dict[str, float]:
        """What is asked of Ray. It says `accelerator_type:A100` 1.0 of each machine with such GPUs."""
        kind = {f"accelerator_type:{self.accelerator}": 0.001} if self.accelerator else {}
        return {"CPU": float(self.cpus)} | ({"GPU": self.gpus} if self.gpus else {}) | kind

    def __str__(self) -> str:
        kind = f" of type {self.accelerator}" if self.accelerator else ""
        return f"{self.cpus} CPU and {self.gpus:g} GPU{kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the cluster, as Ray describes it."""

    id: str
    resources: Mapping[str, float]
    """All of it, whoever uses it."""

    def fits(self, need: Resources) -> bool:
        """Whether it could hold a unit if nothing else ran there."""
        return all(self.resources.get(name, 0.0) >= amount for name, amount in need.bundle.items())

    def describe(self) -> str:
        """Write its CPUs and GPUs."""
        kinds = [key.partition(":")[2] for key in self.resources if key.startswith("accelerator_type:")]
        what = f" ({', '.join(sorted(kinds))})" if kinds else ""
        return f"{self.resources.get('CPU', 0):g} CPU and {self.resources.get('GPU', 0):g} GPU{what}"


def check_here(need: Resources, here: Machine | None = None) -> None:
    """Raises `DeviceError`, with the settings that would fit, where a unit does not fit this machine.

    Args:
        here: this machine as Ray counts it; None counts what Ray may find at most, and starts nothing.
    """
    if here is None:  # only Ray finds out the kind of a GPU
        here, need = _this_machine(gpus=need.gpus > 0), replace(need, accelerator="")
    if here.fits(need):
        return
    has = {name: int(here.resources.get(kind, 0)) for name, kind in (("gpus", "GPU"), ("cpus", "CPU"))}
    smaller = [f"--set resources.{name}={count}" for name, count in has.items() if getattr(need, name) > count]
    fits = f"{' '.join(smaller)} fits it; " if smaller else ""
    what = f"a unit needs {need} (resources.*), but this machine has {here.describe()}"
    raise DeviceError(f"{what}; {fits}--address trains on a cluster")


def _this_machine(*, gpus: bool) -> Machine:
    """What Ray may find on this machine at most."""
    counted = {"CPU": float(os.cpu_count() or 1)}
    if gpus:
        from torch import cuda  # takes seconds; counts GPUs without starting one

        counted["GPU"] = float(cuda.device_count())
    with contextlib.suppress(ValueError):  # Ray says what is wrong with it
        counted |= json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}"))
    return Machine(id="", resources=counted)
