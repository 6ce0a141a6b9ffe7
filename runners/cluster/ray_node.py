"""One Ray node within a batch job: `python -m runners.cluster.ray_node --session FOLDER head|address|worker`.

The session is a private folder that all nodes of the job see. `head` starts Ray's head with a token and ports of its
own; the token is in the file `token` there, readable by its owner alone, and Ray's processes are given its path.
`address` waits until the head answers and prints its address. `worker` joins the head.

A batch system may signal every process of a job when it wants the job to save and end, and Ray's processes would end at
once. So they are started with SIGTERM and SIGUSR1 blocked, and this process ends them at SIGUSR2: these alone, by their
process numbers, because another job of the same user may run Ray on the same node.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from goal_core.atomic import replace_bytes
from goal_core.errors import GoalError, UnfinishedError
from runners.execution.private_folder import private_folder

_FIRST_PORT, _NUM_PORTS = 20000, 12000
"""Ports of heads: above those of Ray's workers (10002 to 19999), below those that Linux gives to clients (32768)."""
_PORT_TRIES = 20
_START_S = 120.0
"""Seconds that a head may take until it answers."""
_JOIN_S = 600.0
"""Seconds that a worker or a launch waits for the head."""
_END_S = 10.0
_SAVING = (signal.SIGTERM, signal.SIGUSR1)
_ADDRESS, _TOKEN, _FAILED = "address", "token", "failed"


def ports(job: int) -> Iterator[int]:
    """The ports that a job's head tries, in order: two jobs on one node begin at different ones."""
    first = (job * 7) % _NUM_PORTS
    for number in range(_PORT_TRIES):
        yield _FIRST_PORT + (first + number * 101) % _NUM_PORTS


def is_free(port: int) -> bool:
    """Whether nothing on this machine listens on a port."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


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
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self._session / _TOKEN),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        signal.pthread_sigmask(signal.SIG_BLOCK, _SAVING)
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
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SAVING)

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


def run_head(node: RayNode, session: Path, folder: str, job: int) -> int:
    """Start the head on a free port, write its address, and wait for its end. Returns the exit status."""
    _write_private(session / _TOKEN, secrets.token_hex(32))
    for port in ports(job):
        if not is_free(port):
            continue
        node.start(folder, port=port)
        if address := _answers(node, port):
            replace_bytes(session / _ADDRESS, address.encode())
            return node.wait()
        if node.is_running():
            break  # it hangs, and would on another port
    node.end()
    said = f"Ray's head did not start on {socket.gethostname()}: {node.last_lines}"
    replace_bytes(session / _FAILED, said.encode())
    print(f"error: {said}", file=sys.stderr)
    return UnfinishedError.status


def _answers(node: RayNode, port: int) -> str:
    """The head's address once it takes connections; empty if its process ends before, or it takes too long."""
    host = own_address()
    deadline = time.monotonic() + _START_S
    while node.is_running() and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=5.0):
            time.sleep(1.0)  # another process may have taken the port first; then ours ends
            return f"{host}:{port}" if node.is_running() else ""
        time.sleep(0.3)
    return ""


def own_address() -> str:
    """The address of this machine that Ray uses: that of the interface which leads to other networks."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())


def wait_for_address(session: Path) -> str:
    """Wait for the head's address.

    Raises:
        UnfinishedError: the head did not start.
    """
    deadline = time.monotonic() + _JOIN_S
    while time.monotonic() < deadline:
        names = os.listdir(session)  # opening the folder makes a network file system look for new files
        if _ADDRESS in names:
            return (session / _ADDRESS).read_text()
        if _FAILED in names:
            raise UnfinishedError((session / _FAILED).read_text())
        time.sleep(0.5)
    raise UnfinishedError(f"Ray's head gave no address within {_JOIN_S:.0f} s (see {session})")


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)


def _own_folder(session: Path, job: int) -> str:
    """A folder of this job alone on the node's own disk; its short path leaves room for the names of sockets.

    Raises:
        GoalError: somebody else has made it.
    """
    return str(private_folder(Path("/tmp") / f"goal-sweep-{job}-{session.name[-6:]}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--session", type=Path, required=True)
    parser.add_argument("part", choices=("head", "worker", "address"))
    given = parser.parse_args(arguments)
    job = int(os.environ.get("SLURM_JOB_ID", os.getpid()))
    for number in _SAVING:
        signal.signal(number, signal.SIG_IGN)
    try:
        if given.part == "address":
            print(wait_for_address(given.session))
            return 0
        node = RayNode(given.session, f"ray-{given.part}-{os.environ.get('SLURM_PROCID', '0')}.log")
        signal.signal(signal.SIGUSR2, lambda *_: node.ask_to_end())
        folder = _own_folder(given.session, job)
        try:
            if given.part == "head":
                return run_head(node, given.session, folder, job)
            node.start(folder, address=wait_for_address(given.session))
            return node.wait()
        finally:
            node.end()
            shutil.rmtree(folder, ignore_errors=True)
    except GoalError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status if isinstance(error, UnfinishedError) else 2


if __name__ == "__main__":
    sys.exit(main())
