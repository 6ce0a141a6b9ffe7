"""The containers of docker-compose.yml for tests: images made on this machine, a daemon if none runs, and launches.

No registry is needed: the base images are made from Debian's packages with debootstrap. Containers, networks, volumes
are removed again. Images are kept in a daemon that ran before, so that the next run builds only what has changed.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT
from tests.helpers.until import until

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


def succeeds(*command: str) -> bool:
    return bool(shutil.which(command[0])) and subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def docker_daemon(folder: Path) -> Iterator[None]:
    """A reachable Docker daemon: the one that runs, or one of our own for as long as the tests need it."""
    if not compose_command():
        pytest.skip("docker compose is not installed")
    if succeeds("docker", "info"):
        yield
        return
    if os.geteuid() or not shutil.which("dockerd"):
        pytest.skip("no Docker daemon answers, and only root can start one")
    options = [f"--{name}={folder / name}" for name in ("data-root", "exec-root", "pidfile")]
    with (folder / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(["dockerd", *options], stdout=log, stderr=log)
    try:
        until(lambda: succeeds("docker", "info"), "answer of Docker", 60)
        yield
    finally:
        daemon.terminate()
        daemon.wait(60)
        # It leaves its network namespace mounted, without which pytest can delete the folder later.
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in sorted((one for one in mounted if one.startswith(f"{folder}/")), key=len, reverse=True):
            run("umount", "--lazy", point, check=False)
        shutil.rmtree(folder / "data-root", ignore_errors=True)  # 15 GB


def compose_command() -> list[str]:
    """`docker compose`, or the older `docker-compose`; empty if there is none."""
    if succeeds("docker", "compose", "version"):
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else []


def make_images(folder: Path) -> None:
    """Make the images that are missing; that of goal-sweep always, because its layer of libraries is kept."""
    for name, packages in PACKAGES.items():
        if not succeeds("docker", "image", "inspect", name):
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
    source = folder / "source"  # a clone, because the folder .git of a worktree is a file that points elsewhere
    run("git", "clone", "--quiet", str(ROOT), str(source))
    for tag, context, image in (
        ("local/python:test", base, ""),
        (IMAGES["POSTGRES_IMAGE"], HERE / "postgres", DEBIAN_POSTGRES),
        (IMAGES["S3_IMAGE"], HERE / "s3", "local/python:test"),
        (IMAGES["GOAL_IMAGE"], source, "local/python:test"),
    ):
        given = ["--build-arg", f"BASE_IMAGE={image}"] if image else []
        run("docker", "build", "--network", "host", "-t", tag, *given, str(context), timeout=3600)


@dataclass
class Launch:
    """A `goal-sweep launch` in a container of its own."""

    process: subprocess.Popen[bytes]
    log: Path

    def says(self, pattern: str) -> bool:
        return re.search(pattern, self.log.read_text(errors="replace")) is not None

    def wait_for(self, pattern: str) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, f"the launch ended: {self.log.read_text(errors='replace')[-3000:]}"
            return self.says(pattern)

        until(ready, pattern, 1800)

    def end(self) -> int:
        return self.process.wait(2700)


class Stack:
    """The running containers of compose files; logs go to a folder."""

    def __init__(self, folder: Path, *files: Path) -> None:
        self.folder = folder
        given = [word for file in files for word in ("-f", str(file))]
        self._command = [*compose_command(), "-p", PROJECT, *given]
        self._environment = {**os.environ, **IMAGES, **PORTS}

    def compose(self, *arguments: str, check: bool = True) -> str:
        return run(*self._command, *arguments, cwd=ROOT, env=self._environment, timeout=1800, check=check)

    def container(self, service: str, number: int = 1) -> str:
        """The id of a service's container."""
        label = f"label=com.docker.compose.service={service}"
        ids = run("docker", "ps", "-aq", "--filter", f"label=com.docker.compose.project={PROJECT}", "--filter", label,
                  "--filter", f"label=com.docker.compose.container-number={number}")  # fmt: skip
        return ids.split()[0]

    def wait_healthy(self, service: str, number: int = 1) -> None:
        state = ("docker", "inspect", "-f", "{{.State.Health.Status}}", self.container(service, number))
        until(lambda: run(*state).strip() == "healthy", f"healthy {service}", 900)

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
