"""Sweeps as jobs of a real Slurm: whatever happens to a job, it ends with the numbers of an unbroken launch."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from goal_sweep.runners.store.submissions import Submissions
from tests.helpers.launches import attempts, check_mlflow, goal_sweep, records_of, results, sweep_in, tampered_trainer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
END_S = 1500
"""A busy machine takes long, and Slurm holds a requeued job for two minutes."""


class Submitted:
    """A sweep in a folder, and what a shell can do with it. Every command is a process of its own."""

    def __init__(self, folder: Path, bench: Mapping[str, str], **settings: Any) -> None:
        self.folder, self.bench = folder, bench
        sweep_in(folder)
        slow = tampered_trainer(folder / "slow", f"time.sleep({settings.pop('pause', 0.2)})")
        variables = {"PYTHONPATH": slow["PYTHONPATH"].rstrip(":"), "OMP_NUM_THREADS": "1"}
        site = {"slurm": {"time": "0:20:00", "environment": variables, **settings}}
        (folder / "site.yaml").write_text(json.dumps(site))
        self.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml")

    def goal(self, *words: str, status: int = 0) -> str:
        done = goal_sweep(self.folder, *words, environment=self.bench)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    def slurm(self, *words: str) -> str:
        return subprocess.run(words, env=self.bench, capture_output=True, text=True, check=True).stdout

    @property
    def jobs(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = json.loads(self.goal("status", "tiny.yaml", "--jobs", "--json"))
        return jobs

    @property
    def log(self) -> str:
        return self.goal("logs", "tiny.yaml", "--job")

    def wait(self, ready: Callable[[], object], what: str, seconds: float = END_S) -> None:
        deadline = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < deadline, f"no {what} within {seconds:.0f} s\n{self.log}"
            time.sleep(1.0)

    def wait_for_an_epoch(self) -> None:
        self.wait(lambda: len(self.epochs()) >= 2, "epoch")

    def epochs(self) -> list[Path]:
        return list(self.folder.glob("goal-sweep-store/cells/*/frozen-*/metrics.*jsonl"))

    def wait_for_the_end(self) -> int:
        self.wait(lambda: self.jobs[-1]["phase"] == "ended", "end")
        return int(self.jobs[-1]["status"])


def check_equal(folder: Path, unbroken: Path) -> None:
    assert results(folder) == results(unbroken)
    assert len(results(folder)) == 4
    assert records_of(folder) == records_of(unbroken)


def processes_of(job: str) -> list[str]:
    """Command lines of the Ray processes of a job."""
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if f"goal-sweep-{job}-" in line:
            lines.append(line)
    return lines


def test_a_job_of_two_nodes_survives_a_requeue(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", bench, nodes=2)
    run.wait_for_an_epoch()
    job = run.jobs[-1]["job"]
    assert run.jobs[-1]["phase"] == "running"
    (token_file,) = run.folder.glob("goal-sweep-store/submissions/*/run-*/token")
    token = token_file.read_text()
    assert (token_file.stat().st_mode & 0o777, token_file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert len(processes_of(job)) > 4
    assert not [process for process in psutil.process_iter(["cmdline"]) if token in str(process.info["cmdline"])]
    texts = [path for path in run.folder.rglob("*") if path.is_file() and path != token_file]
    texts += [path for path in Path("/tmp").glob(f"goal-sweep-{job}-*/session_*/logs/**/*") if path.is_file()]
    assert not [path for path in texts if token.encode() in path.read_bytes()]

    run.slurm("scontrol", "requeue", job)

    assert run.wait_for_the_end() == 0
    assert f"{run.jobs[-1]['id']} begins on n[1-2], run 2" in run.log
    assert "stopped by SIGTERM" in run.log
    assert [one["outcome"] for one in next(iter(attempts(run.folder).values()))][:1] == ["interrupted"]
    check_equal(run.folder, unbroken)
    check_mlflow(run.folder)
    assert not processes_of(job)
    assert not list(Path("/tmp").glob(f"goal-sweep-{job}-*"))
    assert not token_file.parent.exists()


def test_a_job_that_reaches_its_time_limit_twice_goes_on(
    bench: Mapping[str, str], unbroken: Path, tmp_path: Path
) -> None:
    run = Submitted(tmp_path / "run", bench, nodes=2, time="0:03:00", save_before=60, pause=1.2)
    run.wait(lambda: run.log.count("back to the queue: the time limit is near") >= 2, "second time limit")
    # Both limits are reached. A longer one lets the third run come to the end, however slow this machine is.
    run.slurm("scontrol", "update", f"JobId={run.jobs[-1]['job']}", "TimeLimit=60")
    assert run.wait_for_the_end() == 0
    assert "run 3" in run.log
    (idle,) = run.folder.glob("goal-sweep-store/submissions/*/idle-runs")
    assert idle.read_text() == "0\n"  # both have saved something
    assert {one["outcome"] for of in attempts(run.folder).values() for one in of[:-1]} == {"interrupted"}
    check_equal(run.folder, unbroken)
    check_mlflow(run.folder)


def test_a_cancelled_job_is_continued_by_the_next(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", bench, nodes=2)
    run.wait_for_an_epoch()
    refused = run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml", status=2)
    assert "is still in the queue or running; goal-sweep cancel tiny.yaml ends it" in refused
    run.goal("cancel", "tiny.yaml")
    run.wait(lambda: run.jobs[-1]["phase"] == "ended", "end", 60)
    assert run.jobs[-1]["state"].startswith("cancelled")
    assert "no job of tiny.yaml is in a queue or running" in run.goal("cancel", "tiny.yaml", status=2)
    assert {one["outcome"] for of in attempts(run.folder).values() for one in of} == {"interrupted"}
    assert "back to the queue" not in run.log

    run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml")

    assert run.wait_for_the_end() == 0
    assert [one["job"] for one in run.jobs] == sorted({one["job"] for one in run.jobs}, key=int)
    check_equal(run.folder, unbroken)


BLIND = """#!/bin/sh
if [ "$SLURMD_NODENAME" = n2 ]; then exec {on_n2} "$@"; fi
exec {python} "$@"
"""


@pytest.mark.parametrize(
    ("on_n2", "said"),
    [
        ("{python} -I -S", "No module named"),  # without the path on which goal-sweep lies
        ("unshare --mount sh -c 'mount -t tmpfs none {store} && exec {python} \"$@\"' sh", "does not see"),
    ],
    ids=["goal-sweep", "store"],
)
def test_a_node_that_lacks_something_ends_the_job(
    on_n2: str, said: str, bench: Mapping[str, str], tmp_path: Path
) -> None:
    if "unshare" in on_n2 and subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("this machine allows no mounts of a process's own")
    python, folder = tmp_path / "python", tmp_path / "run"
    places = {"python": sys.executable, "store": str(folder / "goal-sweep-store")}
    python.write_text(BLIND.format(on_n2=on_n2.format(**places), **places))
    python.chmod(0o755)
    run = Submitted(folder, bench, nodes=2, python=str(python))
    assert run.wait_for_the_end() == 2
    assert said in run.log
    assert "n[1-2] cannot run the sweep with" in run.log
    assert "Traceback" not in run.log


FAULTY = """#!/bin/sh
case "$*" in *slurm_node*) shift 3; exec {python} -P {code} "$@" ;; esac
exec {python} "$@"
"""
OTHER_OPTION = """
import re, sys
from goal_sweep.runners.cluster import slurm_node
from goal_sweep.runners.execution.session.node import RayNode
start = RayNode.start
def other(self, *options):
    start(self, *(re.sub("^--{name}=.*", "--{name}={value}", one) for one in options))
if sys.argv[-1] == "{part}":
    RayNode.start = other
slurm_node._JOIN_S = 45
sys.exit(slurm_node.main())
"""


@pytest.mark.parametrize(
    ("part", "name", "said"),
    [("head", "port", "error: Ray does not start on .*port"), ("worker", "address", "error: 1 of 2 nodes joined wit")],
    ids=["a port is taken", "the head cannot be reached"],
)
def test_a_ray_that_cannot_start_ends_the_job_after_three_runs(
    part: str, name: str, said: str, bench: Mapping[str, str], tmp_path: Path
) -> None:
    python, code = tmp_path / "python", tmp_path / "code.py"
    python.write_text(FAULTY.format(python=sys.executable, code=code))
    python.chmod(0o755)
    with socket.create_server(("", 0)) as silent:
        port = silent.getsockname()[1]
        value = port if part == "head" else f"127.0.0.1:{port}"
        code.write_text(OTHER_OPTION.format(part=part, name=name, value=value))
        run = Submitted(tmp_path / "run", bench, nodes=2, python=str(python), missing_nodes="give-up")
        assert run.wait_for_the_end() == 75
    runs = re.split(" begins on ", run.log)[1:]
    assert len(runs) == 3
    assert all(re.search(said, one) for one in runs)
    assert run.log.count("back to the queue") == 2
    assert "no training has saved anything in 3 runs" in runs[-1]
    assert not list(run.folder.glob("goal-sweep-store/submissions/*/run-*"))
    assert not list(Path("/tmp").glob(f"goal-sweep-{run.jobs[-1]['job']}-*"))


def test_another_job_with_the_number_of_a_record_is_left_alone(bench: Mapping[str, str], tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", bench)
    other = run.slurm("sbatch", "--parsable", "--job-name=other", "--output=/dev/null", "--wrap", "sleep 600").strip()
    run.goal("cancel", "tiny.yaml")
    run.wait(lambda: run.jobs[-1]["phase"] == "ended", "end", 90)
    records = Submissions(run.folder / "goal-sweep-store")
    (one,) = records.of("tiny")
    records.note(one, ended="", cancelled=0.0, job=other)
    for path in records.files(one.id).glob("*"):
        path.unlink()
    assert "is another one now (other)" in run.goal("status", "tiny.yaml", "--jobs")
    run.goal("cancel", "tiny.yaml", one.id, status=2)
    assert run.slurm("squeue", "--noheader", f"--jobs={other}", "--format=%T").strip() in ("RUNNING", "PENDING")
    run.slurm("scancel", other)


def test_two_sweeps_share_the_same_nodes(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    one, other = (Submitted(tmp_path / name, bench, nodes=2) for name in ("one", "other"))
    one.wait_for_an_epoch()
    other.wait_for_an_epoch()
    assert [run.jobs[-1]["phase"] for run in (one, other)] == ["running", "running"]
    ports = [
        next(re.findall(r"--port=(\d+)", line) for line in processes_of(run.jobs[-1]["job"]) if "--head" in line)
        for run in (one, other)
    ]
    assert ports[0][0] != ports[1][0]
    for run in (one, other):
        assert run.wait_for_the_end() == 0
        check_equal(run.folder, unbroken)


def test_an_array_shares_the_store_and_the_next_trains_what_a_cancelled_job_left(
    bench: Mapping[str, str], tmp_path: Path
) -> None:
    text = "objectives: {only: [con/con, sig-ms/cir]}"
    alone = sweep_in(tmp_path / "alone")
    seeds = ["--set", "seeds=[1,2,3]"]
    assert goal_sweep(alone, "launch", "tiny.yaml", *seeds).returncode == 0
    folder = tmp_path / "run"
    run = Submitted(folder, bench, array=3, cpus_per_node=1, pause=0.5)
    run.goal("cancel", "tiny.yaml")
    (folder / "tiny.yaml").write_text((folder / "tiny.yaml").read_text().replace("seeds: [1]", "seeds: [1, 2, 3]"))
    assert text in (folder / "tiny.yaml").read_text()
    run.wait(lambda: run.jobs[-1]["phase"] == "ended", "end", 90)
    run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml")
    run.wait(lambda: len(run.epochs()) >= 6, "epoch of every cell")
    owners = {one["launch_id"] for of in attempts(folder).values() for one in of}
    assert len(owners) == 3
    run.slurm("scancel", f"{run.jobs[-1]['job'].split(',')[0]}_1")
    assert run.wait_for_the_end() == 75  # of the cancelled job
    assert "MLflow is left to goal-sweep sync" in run.log

    run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml")
    assert run.wait_for_the_end() == 0
    assert results(folder) == results(alone)
    assert len(results(folder)) == 12
    assert records_of(folder) == records_of(alone)
    assert "report: 12 of 12 results" in run.log
