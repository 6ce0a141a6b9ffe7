"""Sweeps as jobs of a real Slurm: whatever happens to a job, it ends with the numbers of an unbroken launch."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.helpers.launches import attempts, check_equal, goal_sweep, sweep_in, tampered_trainer

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


def processes_of(job: str) -> list[str]:
    """Command lines of the Ray processes of a job."""
    lines = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if f"/tmp/goal-sweep-{job}" in line:
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
    texts += [path for path in Path("/tmp").glob(f"goal-sweep-{job}/session_*/logs/**/*") if path.is_file()]
    assert not [path for path in texts if token.encode() in path.read_bytes()]

    run.slurm("scontrol", "requeue", job)

    assert run.wait_for_the_end() == 0
    assert f"{run.jobs[-1]['id']} begins on n[1-2], run 2" in run.log
    assert not any(one["counted"] for of in attempts(run.folder).values() for one in of)
    check_equal(run.folder, unbroken)
    assert not processes_of(job)
    assert not Path(f"/tmp/goal-sweep-{job}").exists()
    assert not token_file.parent.exists()


def test_a_job_that_reaches_its_time_limit_twice_goes_on(bench: Mapping[str, str], unbroken: Path, tmp_path: Path):
    run = Submitted(tmp_path / "run", bench, nodes=2, time="0:03:00", save_before=60, pause=1.2)
    run.wait(lambda: run.log.count("back to the queue: the time limit is near") >= 2, "second time limit")
    # Both limits are reached. A longer one lets the third run come to the end, however slow this machine is.
    run.slurm("scontrol", "update", f"JobId={run.jobs[-1]['job']}", "TimeLimit=60")
    assert run.wait_for_the_end() == 0
    assert "run 3" in run.log
    (progress,) = run.folder.glob("goal-sweep-store/submissions/*/progress")
    assert progress.read_text().split()[1] == "0"  # both have saved something
    assert {one["outcome"] for of in attempts(run.folder).values() for one in of[:-1]} == {"interrupted"}
    check_equal(run.folder, unbroken)


def test_a_cancelled_job_is_continued_by_the_next(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", bench, nodes=2)
    run.wait_for_an_epoch()
    refused = run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml", status=2)
    assert "of this sweep is running on n[1-2]; goal-sweep cancel tiny.yaml ends it" in refused
    run.goal("cancel", "tiny.yaml")
    run.wait(lambda: run.jobs[-1]["phase"] == "ended", "end", 60)
    assert run.jobs[-1]["state"] == "stopped before the end; submit continues it"
    assert "is over: stopped before the end" in run.goal("cancel", "tiny.yaml", status=2)
    assert {one["outcome"] for of in attempts(run.folder).values() for one in of} == {"interrupted"}
    assert "back to the queue" not in run.log

    run.goal("submit", "tiny.yaml", "--to", "slurm", "--site", "site.yaml")

    assert run.wait_for_the_end() == 0
    assert [one["job"] for one in run.jobs] == sorted({one["job"] for one in run.jobs}, key=int)
    check_equal(run.folder, unbroken, in_mlflow=False)


BLIND = """#!/bin/sh
if [ "$SLURMD_NODENAME" = n2 ]; then exec {on_n2} "$@"; fi
exec {python} "$@"
"""


@pytest.mark.parametrize(
    ("on_n2", "said"),
    [
        ("{python} -I -S", "No module named"),  # without the path on which goal-sweep lies
        ("unshare --mount sh -c 'mount -t tmpfs none {store} && exec {python} \"$@\"' sh", "is neither a file"),
    ],
    ids=["goal-sweep", "store"],
)
def test_a_node_that_lacks_something_ends_the_job(on_n2: str, said: str, bench: Mapping[str, str], tmp_path: Path):
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


def test_two_sweeps_share_the_same_nodes(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    one, other = (Submitted(tmp_path / name, bench, nodes=2) for name in ("one", "other"))
    one.wait_for_an_epoch()
    other.wait_for_an_epoch()
    assert [run.jobs[-1]["phase"] for run in (one, other)] == ["running", "running"]
    for run in (one, other):
        assert run.wait_for_the_end() == 0
        check_equal(run.folder, unbroken, in_mlflow=False)


def test_the_jobs_of_an_array_train_each_cell_once(bench: Mapping[str, str], unbroken: Path, tmp_path: Path) -> None:
    run = Submitted(tmp_path / "run", bench, array=2, cpus_per_node=1, pause=0.5)
    assert run.wait_for_the_end() == 0
    owners = [{one["launch"] for one in of} for of in attempts(run.folder).values()]
    assert all(len(of) == 1 for of in owners)
    check_equal(run.folder, unbroken, in_mlflow=False)
