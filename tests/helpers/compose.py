"""The containers of docker-compose.yml for tests: images made on this machine, a daemon if none runs, and launches.

No registry is needed: the base images are made from Debian's packages with debootstrap. Containers, networks, volumes
are removed again. Images are kept in a daemon that ran before, so that the next run builds only what has changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

HERE = ROOT / "tests" / "cluster" / "compose"
PROJECT = "goal-sweep-test"
PYTHON, DEBIAN_POSTGRES = "local/python:bookworm", "local/postgres-base:bookworm"
IMAGES = {"GOAL_IMAGE": "goal-sweep:test", "POSTGRES_IMAGE": "local/postgres:test", "S3_IMAGE": "local/s3:test"}
PORTS = {"MLFLOW_PORT": "5055", "RAY_PORT": "8277"}
READ_RESULTS = """
import json, pathlib, sys
results = pathlib.Path(sys.argv[1]).glob("cells/*/*/result.json")
print(json.dumps({"/".join(path.parts[-3:-1]): json.loads(path.read_text())["metrics"] for path in results}))
"""
"""Prints the final metrics of each finished training of a store."""
PACKAGES = {PYTHON: "python3,python3-venv,python3-pip,ca-certificates,git", DEBIAN_POSTGRES: "postgresql"}


def run(*command: str, timeout: float = 600, check: bool = True, **more: object) -> str:
    """Run a command and return what it prints; its errors are part of the failure's message."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **more)  # type: ignore[call-overload]
    if check and done.returncode:
        raise AssertionError(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}\n{done.stderr}"[-4000:])
    return str(done.stdout)


@contextmanager
def docker_daemon(folder: Path) -> Iterator[None]:
    """A reachable Docker daemon: the one that runs, or one of our own for as long as the tests need it."""
    if not shutil.which("docker"):
        pytest.skip("docker is not installed")
    if not compose_command():
        pytest.skip("docker compose is not installed")
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0:
        yield
        return
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("no Docker daemon answers, and only root can start one")
    options = [
        "--data-root",
        str(folder / "data"),
        "--exec-root",
        str(folder / "exec"),
        "--pidfile",
        str(folder / "pid"),
    ]
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(["dockerd", *options], stdout=log, stderr=log)
    try:
        wait(lambda: subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0, 60)
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)
        unmount_below(folder)
        shutil.rmtree(folder / "data", ignore_errors=True)  # 15 GB


def unmount_below(folder: Path) -> None:
    """Unmount what a daemon leaves mounted (its network namespace), or pytest could not delete the folder later."""
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in sorted((p for p in mounted if p.startswith(f"{folder}/")), key=len, reverse=True):
        run("umount", "--lazy", point, check=False)


def compose_command() -> list[str]:
    """`docker compose`, or the older `docker-compose`; empty if there is none."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def wait(done: Callable[[], object], seconds: float, what: str = "") -> float:
    """Wait until something is true; returns the seconds it took."""
    start = time.monotonic()
    while not done():
        if time.monotonic() - start > seconds:
            raise AssertionError(f"not within {seconds} seconds: {what}")
        time.sleep(0.5)
    return time.monotonic() - start


def has_image(name: str) -> bool:
    return subprocess.run(["docker", "image", "inspect", name], capture_output=True, check=False).returncode == 0


def make_images(folder: Path) -> None:
    """Make the images that are missing; that of goal-sweep always, because its layer of libraries is kept."""
    for name, packages in PACKAGES.items():
        if not has_image(name):
            if os.geteuid() or not shutil.which("debootstrap"):
                pytest.skip(f"no image {name}, and debootstrap, which makes it, needs root and to be installed")
            run("debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder / "root"))
            run("sh", "-c", f"tar -C {folder}/root -c . | docker import - {name}")
            shutil.rmtree(folder / "root")
    base = folder / "base"  # with this machine's certificates and package index, which a build cannot see otherwise
    base.mkdir()
    shutil.copy(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"), base / "ca.crt")
    index = run("pip", "config", "get", "global.index-url", check=False).strip() or "https://pypi.org/simple"
    (base / "pip.conf").write_text(f"[global]\ncert = /etc/ssl/certs/ca-certificates.crt\nindex-url = {index}\n")
    (base / "Dockerfile").write_text(
        f"FROM {PYTHON}\nCOPY ca.crt /etc/ssl/certs/ca-certificates.crt\nCOPY pip.conf /etc/pip.conf\n"
    )
    build("local/python:test", base)
    build(IMAGES["POSTGRES_IMAGE"], HERE / "postgres", BASE_IMAGE=DEBIAN_POSTGRES)
    build(IMAGES["S3_IMAGE"], HERE / "s3", BASE_IMAGE="local/python:test")
    if has_image(IMAGES["GOAL_IMAGE"]) and built_commit() == run("git", "-C", str(ROOT), "rev-parse", "HEAD").strip():
        return
    source = folder / "source"  # a clone, because the folder .git of a worktree is a file that points elsewhere
    run("git", "clone", "--quiet", str(ROOT), str(source))
    build(IMAGES["GOAL_IMAGE"], source, BASE_IMAGE="local/python:test")


def built_commit() -> str:
    """The commit that goal-sweep's image says it was built from; nothing if it had uncommitted changes."""
    script = "from goal_sweep.runners.store.records.provenance import gather as g; "
    script += "print('' if g().git_diff else g().git_commit)"
    return run("docker", "run", "--rm", IMAGES["GOAL_IMAGE"], "python", "-c", script, check=False).strip()


def build(tag: str, context: Path, **arguments: str) -> None:
    given = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    run("docker", "build", "--network", "host", "-t", tag, *given, str(context), timeout=3600)


@dataclass
class Launch:
    """A `goal-sweep launch` in a container of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.log.read_text(errors="replace")) is not None

    def wait_for(self, pattern: str, seconds: float = 1800) -> float:
        def ready() -> bool:
            assert self.process.poll() is None, f"the launch ended: {self.log.read_text(errors='replace')[-3000:]}"
            return self.says(pattern)

        return wait(ready, seconds, pattern)

    def end(self, seconds: float = 2700) -> int:
        return self.process.wait(seconds)


class Stack:
    """The running containers.

    Args:
        folder: where logs go.
        files: compose files, in order.
    """

    def __init__(self, folder: Path, *files: Path) -> None:
        self.folder = folder
        given = [word for file in files for word in ("-f", str(file))]
        self._command = [*compose_command(), "-p", PROJECT, *given]
        self._environment = {**os.environ, **IMAGES, **PORTS}

    def compose(self, *arguments: str, check: bool = True) -> str:
        return run(*self._command, *arguments, cwd=ROOT, env=self._environment, timeout=1800, check=check)

    def start(self) -> None:
        """Start all services, and wait until they are healthy, where Compose is new enough to do so."""
        self.compose("up", "-d", "--no-build", *(["--wait"] if len(compose_command()) > 1 else []))

    def container(self, service: str, number: int = 1) -> str:
        """The id of a service's container."""
        label = f"label=com.docker.compose.service={service}"
        ids = run("docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}", "--filter", label,
                  "--filter", f"label=com.docker.compose.container-number={number}")  # fmt: skip
        return ids.split()[0]

    def network(self, name: str) -> str:
        return f"{PROJECT}_{name}"

    def wait_healthy(self, service: str, number: int = 1, seconds: float = 900) -> float:
        one = self.container(service, number)
        state = ("docker", "inspect", "-f", "{{.State.Health.Status}}", one)
        return wait(lambda: run(*state).strip() == "healthy", seconds, f"{service} is healthy")

    def launch(self, sweep: str, store: str, *options: str) -> Launch:
        """Start a launch that trains into a folder of the store's volume."""
        log = self.folder / f"{store.replace('/', '-')}-{time.monotonic_ns()}.log"
        words = ["run", "--rm", "goal-sweep", "launch", sweep, "--store", f"/goal/{store}", *options]
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*self._command, *words], cwd=ROOT, env=self._environment, stdout=file, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        return Launch(process, log)

    def results(self, store: str) -> dict[str, dict[str, float]]:
        """Final metrics of each finished training, from the store."""
        head = self.container("ray-head")
        return dict(json.loads(run("docker", "exec", head, "python", "-c", READ_RESULTS, f"/goal/{store}")))
