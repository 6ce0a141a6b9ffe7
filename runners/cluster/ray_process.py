"""Ray's processes of one node, apart from the signals by which a batch system asks a job to save."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from runners.cluster.ray_ports import is_free, ports
from runners.execution.joining import MODE, TOKEN_PATH

_END_S = 10.0
SAVING = (signal.SIGTERM, signal.SIGUSR1)
"""The signals with which batch systems ask a job to save."""
TOKEN = "token"
"""The file in the session's folder that holds the token."""


def start_command(session: Path, folder: str, address: str | None, port: int) -> list[str]:
    """The command that starts Ray's processes of one node. All ports but the head's are chosen by the system.

    Args:
        session: the job's private folder.
        folder: where Ray keeps its sockets and logs, on the node's own disk.
        address: the head's address; None starts the head.
        port: the head's port.
    """
    environment = os.environ
    command = [sys.executable, "-P", "-m", "ray.scripts.scripts", "start", "--block", f"--temp-dir={folder}/r"]
    if address is None:
        command += ["--head", f"--port={port}", "--include-dashboard=false"]
        if importlib.util.find_spec("grpc"):  # with it, Ray starts a server for remote clients, on a fixed port
            command += [f"--ray-client-server-port={next(one for one in ports(port) if is_free(one))}"]
    else:
        command += [f"--address={address}"]
    command += ["--dashboard-agent-listen-port=0", "--min-worker-port=0", "--max-worker-port=0"]
    command += ["--disable-usage-stats"] if address is None else []
    command += [f"--num-cpus={environment['SLURM_CPUS_ON_NODE']}"] if "SLURM_CPUS_ON_NODE" in environment else []
    command += [f"--num-gpus={environment['GOAL_SWEEP_GPUS']}"] if "GOAL_SWEEP_GPUS" in environment else []
    return command


class RayNode:
    """Ray's processes of this node.

    Args:
        session: the job's private folder.
        log: name of the file in it that takes their output.
    """

    def __init__(self, session: Path, log: str) -> None:
        self._session, self._log = session, session / log
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = False

    def start(self, folder: str, address: str | None = None, port: int = 0) -> None:
        """Start them, with the signals blocked by which batch systems ask a job to save."""
        environment = {
            **os.environ,
            MODE: "token",
            TOKEN_PATH: str(self._session / TOKEN),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        signal.pthread_sigmask(signal.SIG_BLOCK, SAVING)
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    start_command(self._session, folder, address, port),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SAVING)

    def is_running(self) -> bool:
        """Whether the process that watches over them runs."""
        return self._process is not None and self._process.poll() is None

    def wait(self) -> int:
        """Wait until they end, by themselves or at SIGUSR2. Returns the exit status for this process."""
        while self.is_running() and not self._ending:
            time.sleep(0.5)
        if self._ending:
            self.end()
            return 0
        return 1

    def ask_to_end(self) -> None:
        """Let `wait` end them. For a signal handler."""
        self._ending = True

    def end(self) -> None:
        """End them: first by an interrupt, which lets Ray clean up, then for good."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.Error):
            tree = [psutil.Process(self._process.pid), *psutil.Process(self._process.pid).children(recursive=True)]
            self._process.send_signal(signal.SIGINT)
            _, left = psutil.wait_procs(tree, timeout=_END_S)
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_S)

    @property
    def last_lines(self) -> str:
        """The end of their output, for a message."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-3:])
