"""The scripts as whole texts, and what bash makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goal_sweep.runners.cluster.slurm import python_command, render_close, render_sbatch
from goal_sweep.sweeps import SlurmConfig
from goal_sweep.sweeps.clusters import ContainerConfig
from tests.helpers.cluster_cases import job
from tests.helpers.until import until

GOLDEN = Path(__file__).parent / "golden"
SITE = ("slurm.python=/opt/goal/bin/python", "slurm.partition=gpu", 'slurm.time="24:00:00"', "slurm.cpus_per_node=8")
CASES = {
    "one-node": (*SITE, "slurm.gpus_per_node=1", "slurm.environment={GOAL_DATA: /data/it's here}"),
    "two-nodes": (*SITE, "slurm.nodes=2", "slurm.gpus_per_node=4", "slurm.gpu_type=a100", "slurm.modules=[cuda/12.4]"),
    "array": (*SITE, "slurm.array=4", "slurm.account=p1", "slurm.setup=[ulimit -n 65536]"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_golden_one(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path, made = GOLDEN / f"{name}.sbatch", job(tmp_path, *CASES[name])
    text = render_sbatch(made) + (render_close(made) if "array" in name else "")
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no golden script {name}; write it with --update-golden"
    assert text == path.read_text(), f"another script for {name}; if that is meant, run with --update-golden"
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_no_value_can_add_a_line_or_a_command(tmp_path: Path) -> None:
    store = Path("/shared/$(touch pwned)/100% 'mine'")
    text = render_sbatch(job(tmp_path, "slurm.environment={A: $(touch pwned)}", store=store))
    assert "export A='$(touch pwned)'" in text
    assert (
        "#SBATCH --output='/shared/$(touch pwned)/100%% '\"'\"'mine'\"'\"'/submissions/tiny-0a1b2c-1/job.log'" in text
    )
    folder = next(line for line in text.splitlines() if line.startswith("folder="))
    done = subprocess.run(["bash", "-c", f'{folder}; echo "$folder"'], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{store}/submissions/tiny-0a1b2c-1\n"
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (SlurmConfig(python="/p"), ["/p"]),
        (
            SlurmConfig(gpus_per_node=1, container=ContainerConfig(image="g.sif", mounts=("/a", "/b:/c"))),
            ["apptainer", "exec", "--nv", "--bind", "/a", "--bind", "/b:/c", "g.sif", "python3"],
        ),
    ],
)
def test_python_runs_in_the_container(settings: SlurmConfig, expected: list[str]) -> None:
    assert python_command(settings) == expected


STATUS = """
import os, signal, sys, time
told = os.environ["TOLD"]
if {saves}:
    open(os.environ["GOAL_SWEEP_PROGRESS"], "w").close()
def stop(number, frame):
    open(told, "a").write(signal.Signals(number).name)
    sys.exit(75)
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGTERM, stop)
if {status} is not None:
    sys.exit({status})
open(told + ".up", "w").close()
time.sleep(60)
"""


def started(
    tmp_path: Path,
    status: int | None,
    idle: int = 0,
    *,
    has_goal_sweep: bool = True,
    saves: bool = False,
    modules: str = "[]",
) -> subprocess.Popen[str]:
    """The script of one node, run by bash, with a launch that ends with a status or waits for a signal."""
    package = tmp_path / "path" / "goal_sweep" / "runners"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "cli.py").write_text(STATUS.format(status=status, saves=saves))
    if has_goal_sweep:
        (package / "cluster").mkdir()
        (package / "cluster" / "slurm_node.py").touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "scontrol").write_text('#!/bin/sh\necho "$@" >> "$TOLD"\n')
    (programs / "scontrol").chmod(0o755)
    store = tmp_path / "store"
    made = job(tmp_path, f"slurm.modules={modules}", store=store)
    made.folder.mkdir(parents=True)
    if idle:
        (made.folder / "idle-runs").write_text(f"{idle}\n")
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path / "path"),
        "TOLD": str(tmp_path / "told"),
        **{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "1"},
    }
    return subprocess.Popen(
        ["bash", "-c", render_sbatch(made)], cwd=tmp_path, env=variables, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_final_status_ends_the_job(status: int, tmp_path: Path) -> None:
    run = started(tmp_path, status)
    assert (run.communicate()[0].count("back to the queue"), run.returncode) == (0, status)
    assert (tmp_path / "store/submissions/tiny-0a1b2c-1/status").read_text() == f"{status}\n"


@pytest.mark.parametrize(
    ("signal", "idle", "saves", "told", "said"),
    [
        ("USR1", 0, False, "SIGUSR1requeue 7\n", "back to the queue: the time limit is near"),
        ("USR1", 2, True, "SIGUSR1requeue 7\n", "back to the queue: the time limit is near"),
        ("USR1", 2, False, "SIGUSR1", "no training has saved anything in 3 runs"),
        ("TERM", 0, False, "SIGTERM", ""),
    ],
)
def test_the_time_limit_requeues_a_job_that_progresses_and_a_cancellation_ends_it(
    signal: str, idle: int, saves: bool, told: str, said: str, tmp_path: Path
) -> None:
    run = started(tmp_path, None, idle, saves=saves)
    until((tmp_path / "told.up").exists)
    subprocess.run(["kill", f"-{signal}", str(run.pid)], check=True)
    out = run.communicate()[0]
    assert run.returncode == 75
    assert (tmp_path / "told").read_text() == told
    assert said in out


@pytest.mark.parametrize(("saves", "runs"), [(False, "1"), (True, "0")])
def test_runs_without_progress_are_counted(saves: bool, runs: str, tmp_path: Path) -> None:
    run = started(tmp_path, 75, saves=saves)
    assert "back to the queue: Ray is gone" in run.communicate()[0]
    assert run.returncode == 75
    assert (tmp_path / "store/submissions/tiny-0a1b2c-1/idle-runs").read_text().strip() == runs


def test_a_module_that_cannot_be_loaded_ends_the_job(tmp_path: Path) -> None:
    run = started(tmp_path, 0, modules='["no$(touch pwned)"]')
    assert "goal-sweep: this failed: module load no$(touch pwned)" in run.communicate()[0]
    assert run.returncode == 2
    assert (tmp_path / "store/submissions/tiny-0a1b2c-1/status").read_text() == "2\n"
    assert not (tmp_path / "pwned").exists()


def test_a_module_that_the_job_after_an_array_cannot_load_is_the_status_of_the_array(tmp_path: Path) -> None:
    made = job(tmp_path, "slurm.array=2", "slurm.modules=[nowhere]", store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    run = subprocess.run(["bash", "-c", render_close(made)], stdout=subprocess.PIPE, text=True, check=False)
    assert (run.stdout, run.returncode) == ("goal-sweep: this failed: module load nowhere\n", 2)
    assert (made.folder / "status").read_text() == "2\n"


def test_a_python_without_this_goal_sweep_is_no_failed_sweep(tmp_path: Path) -> None:
    run = started(tmp_path, 0, has_goal_sweep=False)
    assert f"n1 cannot run the sweep with {sys.executable}, as the lines above say" in run.communicate()[0]
    assert run.returncode == 2
    assert (tmp_path / "store/submissions/tiny-0a1b2c-1/status").read_text() == "2\n"
