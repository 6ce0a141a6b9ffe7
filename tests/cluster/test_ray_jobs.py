"""A sweep as a job of a real Ray cluster with a token, through the Jobs API."""

import importlib.util
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.launches import attempts, goal_sweep, records_of, results, sweep_in
from tests.helpers.paths import ROOT
from tests.helpers.until import free_port

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The site file's settings of a Ray head of this machine that takes jobs."""
    if importlib.util.find_spec("aiohttp_cors") is None:
        pytest.skip("Ray's dashboard is not installed: pip install 'ray[default]'")
    folder = tmp_path_factory.mktemp("head")
    token = folder / "token"
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    port, dashboard = free_port(), free_port()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    words = ["start", "--head", "--block", f"--port={port}", f"--dashboard-port={dashboard}", "--num-cpus=2"]
    words += [f"--temp-dir=/tmp/goal-sweep-jobs-{os.getpid()}", "--dashboard-agent-listen-port=0"]
    words += ["--min-worker-port=0", "--max-worker-port=0", f"--ray-client-server-port={free_port()}"]
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *words], env=environment, cwd=folder, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 120
        while not answers(dashboard):
            assert process.poll() is None, (folder / "head.log").read_text()
            assert time.monotonic() < deadline, (folder / "head.log").read_text()
            time.sleep(0.5)
        yield {"address": f"http://127.0.0.1:{dashboard}", "token": str(token)}
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
        for child in children:
            if child.is_running():
                child.kill()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Submitted:
    def __init__(self, folder: Path, head: Mapping[str, str]) -> None:
        self.folder = sweep_in(folder)
        plugin = folder / "plugin.py"
        plugin.write_text("WIDTH = 1\n")
        self.token = head["token"]
        settings = {"address": head["address"], "environment": {"OMP_NUM_THREADS": "1"}, "files": ["plugin.py"]}
        (folder / "site.yaml").write_text(json.dumps({"ray": settings}))

    def goal(self, *words: str, status: int = 0) -> str:
        # Without the source on the path, a job can only run the code that it was sent.
        given = {"PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.token}
        done = goal_sweep(self.folder, *words, environment={**os.environ, **given})
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def submit(self, *words: str) -> None:
        self.goal("submit", "tiny.yaml", "--to", "ray", "--site", "site.yaml", *words)

    @property
    def job(self) -> dict[str, Any]:
        jobs: list[dict[str, Any]] = json.loads(self.goal("status", "tiny.yaml", "--jobs", "--json"))
        return jobs[-1]

    def wait_for_the_end(self) -> dict[str, Any]:
        deadline = time.monotonic() + 400
        while (job := self.job)["phase"] != "ended":
            assert time.monotonic() < deadline, self.goal("logs", "tiny.yaml", "--job")
            time.sleep(2)
        return job


def test_a_job_is_cancelled_and_submitted_again(head: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", head)
    run.submit("--set", "stages.frozen.checkpoint_every=1")
    deadline = time.monotonic() + 200
    while len(list(run.folder.glob("goal-sweep-store/cells/*/frozen-*/metrics.*jsonl"))) < 2:
        assert time.monotonic() < deadline, run.goal("logs", "tiny.yaml", "--job")
        time.sleep(0.2)
    run.goal("cancel", "tiny.yaml")
    assert run.wait_for_the_end()["state"] == "stopped"
    assert {one["outcome"] for of in attempts(run.folder).values() for one in of} == {"interrupted"}
    assert "stopped by SIGTERM" in run.goal("logs", "tiny.yaml", "--job")

    run.submit()
    followed = run.goal("logs", "tiny.yaml", "--job", "--follow")

    assert run.wait_for_the_end()["status"] == 0
    assert "report: 4 of 4 results" in followed
    assert results(run.folder) == results(unbroken)
    assert records_of(run.folder) == records_of(unbroken)
    commits = {one["git_commit"] for of in attempts(run.folder).values() for one in of}
    here = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert commits == {here.strip()}


def test_a_wrong_token_is_one_line(head: Mapping[str, str], tmp_path: Path) -> None:
    other = tmp_path / "token"
    other.write_text(secrets.token_hex(32))
    run = Submitted(tmp_path / "run", {**head, "token": str(other)})
    said = run.goal("submit", "tiny.yaml", "--to", "ray", "--site", "site.yaml", status=2).strip().splitlines()
    assert len(said) == 1
    refusal = f"error: Ray at {head['address']}: Authentication failed: Forbidden: Invalid authentication token"
    assert said[0] == f"{refusal}; the token is that of RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH"
    assert not list(run.folder.glob("goal-sweep-store/submissions/*.json"))
