"""Ray's processes of one node: `ray start` in a child process, and all that it starts. They die with this process.

A node may be slow to start, on a machine where everything is slow. It is waited for as long as its processes live.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from goal_sweep.goal_core.basics.errors import GoalError

SAVING = (signal.SIGTERM, signal.SIGUSR1)
"""The signals with which batch systems ask a job to save. They may signal every process of it; Ray's ignore them."""
_PATIENCE_S, _WORKER_S = 3600, 300
"""Seconds that Ray's processes wait for each other, and for a worker. Of a worker that dies while it starts, Ray
notices only then."""
PATIENT = {
    "RAY_raylet_start_wait_time_s": str(_PATIENCE_S),
    "RAY_agent_register_timeout_ms": f"{_PATIENCE_S}000",
    "RAY_gcs_server_port_wait_time_s": str(_PATIENCE_S),
    "RAY_gcs_server_request_timeout_seconds": str(_PATIENCE_S),
    "RAY_gcs_rpc_server_connect_timeout_s": str(_PATIENCE_S),
    "RAY_py_gcs_connect_timeout_s": str(_PATIENCE_S),
    "RAY_worker_register_timeout_seconds": str(_WORKER_S),
    # Ray's own default of 15 leaves its workers hardly any time of a machine that others use too.
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Variables of a node with which slowness is not taken for death while it starts."""
_UP = "Ray runtime started."
"""What `ray start` says when the node takes part."""
_FATAL = re.compile(r"^\[[^\]]* C \d+ \d+\].*?(?:Check failed: |\): )(.*)", re.MULTILINE)
_FRAME = re.compile(r"\+0x[0-9a-f]+\) \[0x|StackTrace Information")
"""In Ray's logs: the error with which a process has ended itself, and a line of its native stack trace."""
_LINE = 300
"""Characters of an error that a message shows."""
_POLL_S = 0.2
_END_S = 10.0
_PORT_TRIES = 3
_FIRST_PORT, _NUM_PORTS = 20000, 12000
"""Ports of Ray: above those of its workers (10002 to 19999), below those that Linux gives to clients (32768)."""
_KEPT_S = 3600
"""Seconds that the logs of a Ray that has ended are kept, for whoever looks for a reason."""
# Its input ends with the process that has started it. Ray's agents would outlive that by a minute.
_START = """
import os, signal, threading
driver = os.dup(0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
def end_with_it():
    os.read(driver, 1)
    os.killpg(0, signal.SIGKILL)
threading.Thread(target=end_with_it, daemon=True).start()
from ray.scripts.scripts import main
main()
"""


class NodeFailedError(GoalError):
    """Ray's processes of a node have ended while they started."""


class RayNode:
    """Ray's processes of one node on this machine.

    Args:
        log: the file that takes the output of `ray start`.
        folder: where Ray keeps its sockets and logs, on the machine's own disk. Its path should be short.
        environment: variables of Ray's processes, added to those of this one.
    """

    def __init__(self, log: Path, folder: Path, environment: Mapping[str, str]) -> None:
        self._log, self._folder, self._environment = log, folder, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._core: dict[str, psutil.Process] = {}
        self._ports = _free_ports()

    def start_head(self, host: str, *options: str) -> str:
        """Start a head on a free port.

        Args:
            host: this machine's address, for the answer.
            options: of `ray start`.

        Returns:
            Its address, ``host:port``.

        Raises:
            NodeFailedError: its processes have ended, on each of several ports.
        """
        head = ["--head", "--include-dashboard=false", "--no-monitor", "--disable-usage-stats", *options]
        if importlib.util.find_spec("grpc"):  # with it, Ray starts a server for remote clients, on a fixed port
            head.append(f"--ray-client-server-port={next(self._ports)}")
        tries = 0
        while True:
            port, tries = next(self._ports), tries + 1
            self.start(*head, f"--port={port}")
            try:
                self.wait_until_up()
                return f"{host}:{port}"
            except NodeFailedError:  # another process may have taken a port
                if tries == _PORT_TRIES:
                    raise

    def start(self, *options: str) -> None:
        """Start the processes; `wait_until_up` waits for them.

        Args:
            options: of `ray start`.
        """
        # Ray gives its agents only 20 s to say which port they have chosen, so the ports are chosen here.
        agents = (f"--{name}={next(self._ports)}" for name in _AGENTS)
        command = [sys.executable, "-P", "-c", _START, "start", "--block", *agents]
        command += ["--include-log-monitor=false", f"--temp-dir={self._folder}", *options]
        self._listens = next((word.split("=")[1] for word in options if "-listen-port=" in word), "-1")
        self._core = {}
        for path in [*self._folder.glob("session_2*"), *self._log.parent.glob("start-*.log")]:
            _remove_ended(path)
        self._log.unlink(missing_ok=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SAVING)
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    env={**os.environ, **PATIENT, **self._environment},
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the driver; and all that Ray starts is known by it
                )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait_until_up(self) -> None:
        """Wait until the node takes part, however long it takes.

        Raises:
            NodeFailedError: its processes have ended.
        """
        told = False
        while not (is_up := _UP in self._log.read_text(errors="replace")) or "raylet" not in self._core:
            self._find_core()
            if not self.is_running() or (is_up and "raylet" not in self._core):  # it has ended before it was seen
                said = self.last_lines
                self.end()
                raise NodeFailedError(f"Ray does not start on {socket.gethostname()}: {said}")
            told = told or self._tell_port()
            time.sleep(_POLL_S)
        self._find_core()

    def _find_core(self) -> None:
        """Note Ray's own processes as they appear; one that ends before the node is up must not be waited for."""
        for child in self._children():
            with contextlib.suppress(psutil.Error):
                if (name := child.name()) in ("raylet", "gcs_server"):
                    self._core.setdefault(name, child)

    def is_running(self) -> bool:
        """Whether the processes run without which there is no node."""
        return self._process is not None and self._process.poll() is None and all(map(is_alive, self._core.values()))

    def end(self) -> None:
        """End all processes of the node at once, also those whose parent has ended before."""
        process, self._process = self._process, None
        if process is None:
            return
        deadline = time.monotonic() + _END_S
        process.kill()
        assert process.stdin is not None
        process.stdin.close()
        while (left := _alive_in_session(process.pid)) and time.monotonic() < deadline:
            for one in left:  # another may have started meanwhile
                with contextlib.suppress(psutil.Error):
                    one.kill()
            psutil.wait_procs(left, timeout=_POLL_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_END_S)

    @property
    def last_lines(self) -> str:
        """Why the processes have ended, for a message of one line.

        That is the fatal error in Ray's logs, or else the last lines of `ray start`, without Python's traces.
        """
        for _, text in self._logs():
            if found := _FATAL.search(text):
                return found[1].strip()[:_LINE]
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines()]
        return " | ".join([line for line in lines if line][-3:]) or "it has said nothing"

    def log_ends(self, lines: int = 15) -> str:
        """The ends of the logs of Ray's head and node processes, for a job's own log.

        Each line stands there once, and none of native traces, before which the reason would be out of sight.
        """
        found: dict[str, str] = {}
        for name, text in self._logs():
            kept = [line for line in text.splitlines() if line.strip() and not _FRAME.search(line)][-lines:]
            found |= {line: f"{name} | {line}" for line in kept if line not in found}
        return "\n".join(found.values())

    def _logs(self) -> Iterator[tuple[str, str]]:
        """Names and texts of the logs of Ray's head and node processes."""
        for path in sorted(self._folder.glob("session_latest/logs/*")):
            if re.fullmatch(r"(gcs_server|raylet|dashboard_agent|runtime_env_agent)\.(out|err|log)", path.name):
                with contextlib.suppress(OSError):
                    yield path.name, path.read_text(errors="replace")

    def _children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            if self._process is not None:
                return psutil.Process(self._process.pid).children()
        return []

    def _tell_port(self) -> bool:
        """Tell the node process, once it runs, on which port its dashboard agent listens for requests, if on any.

        It would end itself if the agent did not say so within 20 s, in a file, whatever option names the port.
        """
        for child in self._children():
            with contextlib.suppress(psutil.Error, OSError, KeyError):
                if child.name() == "raylet":
                    options = dict(word[2:].split("=", 1) for word in child.cmdline()[1:] if "=" in word)
                    name = f"dashboard_agent_listen_port_{options['node_id']}"
                    (Path(options["session_dir"]) / name).write_text(self._listens)
                    return True
        return False


_AGENTS = ("dashboard-agent-grpc-port", "runtime-env-agent-port", "metrics-export-port")
"""The options of `ray start` with a port for each thing that listens beside a node's own processes."""


def is_alive(process: psutil.Process) -> bool:
    """Whether a process runs, or is suspended. One that has ended and waits for its parent does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _alive_in_session(session: int) -> list[psutil.Process]:
    """The living processes of a session, except its leader."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if pid != session and os.getsid(pid) == session and is_alive(process := psutil.Process(pid)):
                found.append(process)
    return found


def _remove_ended(path: Path) -> None:
    """Remove a session's folder or log, named after a process, once that has ended and nothing was written for an hour.

    Another container may share the folder, whose processes are not seen from here. A session that lives writes.
    """
    with contextlib.suppress(OSError):
        written = max(each.stat().st_mtime for each in [path, *(path / "logs").glob("*")])
        if time.time() - written > _KEPT_S and not psutil.pid_exists(int(path.stem.split("-")[-1].split("_")[-1])):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _free_ports() -> Iterator[int]:
    """Ports of this machine that nothing listens on. Two processes that ask at the same time get different ones."""
    first = os.getpid() * 7 + time.monotonic_ns() // 1_000_000
    for number in range(_NUM_PORTS):
        port = _FIRST_PORT + (first + number * 101) % _NUM_PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            probe.close()
            yield port


def private_folder(path: Path) -> Path:
    """Make a folder that nobody else may enter, or check that it is one: Ray opens its sockets to everybody.

    Args:
        path: the folder.

    Raises:
        GoalError: another user has made it, or it is not a folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()  # a link could lead into a folder of somebody else
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise GoalError(f"{path} belongs to another user, and Ray's files are to lie there; remove it") from None
        path.chmod(0o700)
    return path
