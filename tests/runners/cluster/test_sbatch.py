"""The scripts as whole texts, and what bash makes of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goal_sweep.runners.cluster.slurm import render_sbatch
from tests.helpers.cluster_cases import job, on_path
from tests.helpers.until import until

GOLDEN = Path(__file__).parent / "golden"
SITE = ("slurm.python=/opt/goal/bin/python", "slurm.partition=gpu", 'slurm.time="24:00:00"', "slurm.cpus_per_node=8")
CASES = {
    "one-node": (*SITE, "slurm.gpus_per_node=1", "slurm.environment={GOAL_DATA: /data/it's here}", "slurm.array=4"),
    "two-nodes": (*SITE, "slurm.nodes=2", "slurm.gpus_per_node=4", "slurm.gpu_type=a100", "slurm.modules=[cuda/12.4]"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_script_is_the_golden_one(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    path, text = GOLDEN / f"{name}.sbatch", render_sbatch(job(tmp_path, *CASES[name]))
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


def test_python_and_ray_run_in_the_container(tmp_path: Path) -> None:
    container = "slurm.container={image: g.sif, mounts: [/a, '/b:/c']}"
    text = render_sbatch(job(tmp_path, container, "slurm.gpus_per_node=1", "slurm.nodes=2"))
    assert "python=(apptainer exec --nv --bind /a --bind /b:/c g.sif python3)" in text
    assert "ray=(apptainer exec --nv --bind /a --bind /b:/c g.sif ray)" in text


CLI = """
import json, os, signal, sys, time
told = os.environ["TOLD"]
if sys.argv[1] == "status":
    rows = json.loads(os.environ["ROWS"])
    print(json.dumps([{"state": state, "epoch": epoch} for state, epoch in rows]))
    sys.exit()
open(told + ".arguments", "w").write(" ".join(sys.argv[1:]))
def stop(number, frame):
    open(told, "a").write(signal.Signals(number).name + chr(10))
    sys.exit(75)
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGTERM, stop)
if "STATUS" in os.environ:
    status = int(os.environ["STATUS"])
    os.kill(os.getpid(), -status) if status < 0 else sys.exit(status)
open(told + ".up", "w").close()
time.sleep(60)
"""
"""In the place of goal-sweep's command line: a launch that ends with a status, or waits for a signal."""
SRUN = 'while [ "${1#-}" != "$1" ]; do shift; done; exec "$@"'
RAY = """
case "$1" in
  status) [ -f DIR/ray-up ] && printf ' 1 node_a\\n 1 node_b\\n' ;;
  health-check) [ -f DIR/ray-up ] ;;
  start) [ -n "$RAY_FAILS" ] && exit 1; touch DIR/ray-up; stat -c %a "$RAY_AUTH_TOKEN_PATH" >> DIR/token-mode
    trap 'echo "ray ended" >> DIR/log; exit 1' TERM; sleep 60 & wait ;;
esac
"""


class Script:
    """The script of a job, run by bash with programs in place of Slurm's and Ray's."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
        ray = RAY.replace("DIR", str(tmp_path))
        self.called = on_path(tmp_path, monkeypatch, scontrol="", srun=SRUN, ray=ray)
        (tmp_path / "bin/python").symlink_to(sys.executable)
        (tmp_path / "path/goal_sweep/runners").mkdir(parents=True)
        for name, text in (("__init__.py", ""), ("runners/__init__.py", ""), ("runners/cli.py", CLI)):
            (tmp_path / "path/goal_sweep" / name).write_text(text)
        self.cli, self.told = tmp_path / "path/goal_sweep/runners/cli.py", tmp_path / "told"
        made = job(tmp_path, f"slurm.python={tmp_path / 'bin/python'}", *settings, store=tmp_path / "store")
        self.folder, self._text, self._cwd = made.folder, render_sbatch(made), tmp_path
        made.folder.mkdir(parents=True)
        # Imported by the check of the node too, so only the module's own run does anything.
        self.cli.write_text('if __name__ == "__main__":\n' + "".join(f"    {line}\n" for line in CLI.splitlines()))

    def start(self, **variables: str) -> subprocess.Popen[str]:
        environment = {
            **{"PATH": os.environ["PATH"], "PYTHONPATH": str(self._cwd / "path"), "TOLD": str(self.told)},
            **{"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_CPUS_ON_NODE": "1", "SLURMD_NODENAME": "n1"},
            **{"ROWS": '[["done", 3], ["waiting", 2]]', **variables},
        }
        return subprocess.Popen(
            ["bash", "-c", self._text], cwd=self._cwd, env=environment, stdout=subprocess.PIPE, text=True
        )

    def run(self, **variables: str) -> tuple[int, str]:
        """Run it to its end. Returns its exit status, which it must have written, and what it said."""
        run = self.start(**variables)
        said = run.communicate(timeout=120)[0]
        assert (self.folder / "status").read_text() == f"{run.returncode}\n"
        return run.returncode, said

    @property
    def is_requeued(self) -> bool:
        return "scontrol requeue 7" in self.called()


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    return Script(tmp_path, monkeypatch)


@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_final_status_ends_the_job(status: int, script: Script) -> None:
    assert script.run(STATUS=str(status))[0] == status
    assert not script.is_requeued


@pytest.mark.parametrize(
    ("signal", "is_requeued", "said"),
    [("USR1", True, "back to the queue: the time limit is near"), ("TERM", False, "")],
)
def test_the_time_limit_requeues_a_job_and_a_cancellation_ends_it(
    signal: str, is_requeued: bool, said: str, script: Script
) -> None:
    run = script.start()
    until(script.told.with_suffix(".up").exists)
    subprocess.run(["kill", f"-{signal}", str(run.pid)], check=True)
    out = run.communicate(timeout=60)[0]
    assert run.returncode == 75
    assert script.told.read_text() == f"SIG{signal}\n"
    assert said in out
    assert script.is_requeued is is_requeued


def test_a_job_goes_on_while_runs_make_progress_and_ends_after_three_that_make_none(script: Script) -> None:
    said = [script.run(STATUS=status)[1] for status in ("75", "-9", "75", "75")]
    assert [one.count("back to the queue: the launch was cut off") for one in said] == [1, 1, 1, 0]
    assert "no new epoch in 3 runs" in said[-1]
    assert script.run(STATUS="75", ROWS='[["done", 3], ["running", 3]]')[1].count("back to the queue") == 1


def test_a_job_that_finds_nothing_left_is_done(script: Script) -> None:
    assert script.run(STATUS="75", ROWS='[["done", 3], ["failed", 1]]')[0] == 1
    assert script.run(STATUS="75", ROWS='[["done", 3]]')[0] == 0
    assert not script.is_requeued


def test_what_no_run_can_mend_ends_the_job(tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.cli.unlink()
    status, said = script.run(STATUS="0")
    assert status == 2
    assert f"n1 cannot run the sweep with {tmp_path / 'bin/python'}, as the lines above say" in said
    other = tmp_path / "other"
    other.mkdir()
    status, said = Script(other, monkeypatch, 'slurm.modules=["no$(touch pwned)"]').run(STATUS="0")
    assert status == 2
    assert "goal-sweep: this failed: module load no$(touch pwned)" in said
    assert not list(tmp_path.rglob("pwned"))


def test_several_nodes_are_joined_by_ray_with_a_token_which_ends_with_the_launch(tmp_path: Path, monkeypatch):
    script = Script(tmp_path, monkeypatch, "slurm.nodes=2")
    status, said = script.run(STATUS="0")
    assert status == 0
    assert "2 of 2 nodes joined" in said
    starts = [line for line in script.called() if line.startswith("ray start")]
    assert len(starts) == 2
    address = script.told.with_suffix(".arguments").read_text().split("--address ")[1]
    assert f"--node-ip-address={address.partition(':')[0]} --port={address.partition(':')[2]}" in starts[0]
    assert f"--address={address} " in starts[1]
    assert script.called().count("ray ended") == 2
    assert (tmp_path / "token-mode").read_text().split() == ["600", "600"]
    assert not list(script.folder.glob("run-*"))


@pytest.mark.exhaustive
def test_a_ray_that_does_not_start_is_tried_three_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(tmp_path, monkeypatch, "slurm.nodes=2")
    runs = [script.run(RAY_FAILS="1", ROWS='[["waiting", 0]]') for _ in range(3)]
    assert [status for status, _ in runs] == [75] * 3
    assert ["back to the queue: Ray does not start" in said for _, said in runs] == [True, True, False]
    assert not list(script.folder.glob("run-*"))
