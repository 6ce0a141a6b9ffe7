"""Real Ray nodes on this machine: processes of their own, each with its own home, temporary folder and ports."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.helpers.paths import ROOT
from tests.helpers.until import until

RAY = [str(Path(sys.executable).with_name("ray"))]


def free_port() -> int:
    """A port that nothing listens on now, below the range that Ray gives to its workers."""
    for port in range(6400 + os.getpid() % 2000, 10000):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port
    raise RuntimeError("no free port")


class RayNode:
    """The processes of one Ray node. ``prefix`` is a command that runs it elsewhere, as in a network namespace."""

    def __init__(
        self, folder: Path, options: list[str], environment: Mapping[str, str], prefix: tuple[str, ...] = ()
    ) -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.log = folder / "ray.log"
        own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        own |= {
            "HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
            "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, *RAY, "start", *options, "--object-store-memory=100000000", "--block"],
                cwd=self.home,
                env={**own, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def _wait(self) -> None:
        def started() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "Ray runtime started" in self.log.read_text()

        until(started, "start of Ray", 90)

    def processes(self, command: str = "") -> list[psutil.Process]:
        """The processes of this node whose command line contains a text."""
        found = []
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if command in " ".join(process.cmdline()):
                        found.append(process)
        return found

    def kill(self) -> None:
        """Kill the node at once, as when its machine loses power."""
        processes = self.processes()
        with contextlib.suppress(psutil.Error):
            psutil.Process(self.process.pid).kill()
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait(timeout=30)


class Cable:
    """A network of two machines on this one: this one, and a network namespace for a node. A context manager; for root.

    The name is that of the namespace, at most 8 letters.
    """

    here, there = "10.213.7.1", "10.213.7.2"

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def prefix(self) -> tuple[str, ...]:
        """Runs a command in the namespace."""
        return ("ip", "netns", "exec", self._name)

    def __enter__(self) -> Cable:
        name = self._name
        for line in (
            f"netns add {name}",
            f"link add {name}-a type veth peer name {name}-b",
            f"link set {name}-b netns {name}",
            f"addr add {self.here}/30 dev {name}-a",
            f"link set {name}-a up",
            f"-n {name} addr add {self.there}/30 dev {name}-b",
            f"-n {name} link set {name}-b up",
            f"-n {name} link set lo up",
        ):
            subprocess.run(["ip", *line.split()], check=True)
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["ip", "link", "del", f"{self._name}-a"], check=False)
        subprocess.run(["ip", "netns", "del", self._name], check=False)

    def cut(self) -> None:
        """Let nothing through."""
        subprocess.run(["ip", "link", "set", f"{self._name}-a", "down"], check=True)

    def mend(self) -> None:
        """Let everything through again."""
        subprocess.run(["ip", "link", "set", f"{self._name}-a", "up"], check=True)


class RayCluster:
    """A head, with CPUs and an address, and its workers; a context manager."""

    def __init__(
        self, folder: Path, cpus: int = 0, environment: Mapping[str, str] | None = None, ip: str | None = None
    ) -> None:
        self._folder, self._environment = folder, dict(environment or {})
        # Ray's sockets need short paths.
        self._scratch = Path(tempfile.mkdtemp(prefix="ray-"))
        self.port = free_port()
        self.nodes: dict[str, RayNode] = {}
        head = ["--head", f"--port={self.port}", f"--num-cpus={cpus}", "--include-dashboard=false"]
        head += [f"--node-ip-address={ip}"] if ip else []
        self.address = f"{ip or _own_address()}:{self.port}"
        try:
            self.head = self._start("head", [*head, f"--temp-dir={self._scratch / 'h'}"], {})
        except BaseException:
            self.close()
            raise

    def add(
        self, name: str, cpus: int = 1, cable: Cable | None = None, hidden: Path | None = None, **environment: str
    ) -> RayNode:
        """Start a worker node, on the other side of a cable, or with an empty folder in the place of one, if given."""
        there = [f"--node-ip-address={cable.there}"] if cable else []
        options = [f"--address={self.address}", f"--num-cpus={cpus}", *there]
        prefix = cable.prefix if cable else ()
        if hidden is not None:  # for root
            prefix = (*prefix, "unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden))
        return self._start(name, options, environment, prefix)

    def _start(
        self, name: str, options: list[str], environment: Mapping[str, str], prefix: tuple[str, ...] = ()
    ) -> RayNode:
        self.nodes[name] = RayNode(self._folder / name, options, {**self._environment, **environment}, prefix)
        return self.nodes[name]

    def close(self) -> None:
        """Kill every node, and remove what Ray wrote outside the folder."""
        for node in self.nodes.values():
            node.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _own_address() -> str:
    """The address that Ray gives to this machine's nodes."""
    from ray.util import get_node_ip_address

    return str(get_node_ip_address())
