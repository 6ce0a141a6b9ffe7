from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from goal_core.errors import ConfigError
from runners.cluster import slurm
from runners.cluster.backend import ClusterError, Completed, NoAnswerError
from runners.cluster.slurm import Slurm
from tests.helpers.cluster_cases import Commands, job, refusal, submission


def test_a_job_is_queued_with_its_files_beside_it(tmp_path: Path) -> None:
    commands, made = Commands(sbatch="12;cluster\n"), job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    assert Slurm(commands).submit(made) == "12"
    assert commands.given == [(f"sbatch --parsable {made.folder}/job.sbatch", "")]
    assert (made.folder / "job.sbatch").read_text() == Slurm().render(made)
    assert (made.folder / "sweep.yaml").read_text() == made.sweep_text


def test_an_array_is_followed_by_a_job_that_brings_mlflow_up_to_date(tmp_path: Path) -> None:
    commands = Commands(**{"sbatch --parsable --dependency=afterany:12": "13\n", "sbatch": "12\n"})
    made = job(tmp_path, "slurm.array=2", store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    assert Slurm(commands).submit(made) == "12,13"
    assert "-P -m runners.cli sync" in (made.folder / "close.sbatch").read_text()
    alone = Commands(**{"sbatch --parsable --dependency=afterany:12": refusal("no"), "sbatch": "12\n", "scancel": ""})
    with pytest.raises(ClusterError, match="cannot submit to Slurm: no"):
        Slurm(alone).submit(made)
    assert alone.given[-1][0] == "scancel 12"


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    said = "sbatch: error: Batch job submission failed: Invalid account"
    with pytest.raises(ClusterError) as refused:
        Slurm(Commands(sbatch=refusal(f"sbatch: warning: x\n{said}"))).submit(made)
    assert str(refused.value) == f"cannot submit to Slurm: {said}"


@pytest.mark.parametrize(
    ("queue", "phase", "said"),
    [
        ("PENDING|Priority|\n", "pending", "pending (Priority)"),
        ("RUNNING|None|n[1-2]\n", "running", "running on n[1-2]"),
        (
            "RUNNING|None|n1\nRUNNING|None|n1\nPENDING|Dependency|\n",
            "running",
            "2 running on n1, 1 pending (Dependency)",
        ),
    ],
)
def test_a_job_in_the_queue(queue: str, phase: str, said: str, tmp_path: Path) -> None:
    state = Slurm(Commands(squeue=queue)).state(submission("slurm"), tmp_path)
    assert (state.phase, state.said, state.status, state.is_over) == (phase, said, None, False)


@pytest.mark.parametrize(
    ("answers", "files", "expected"),
    [
        ({"scontrol": "JobId=7 JobState=COMPLETED Reason=None"}, {"status": "0\n"}, ("ended", "completed", 0)),
        ({"scontrol": "JobId=7 JobState=CANCELLED"}, {}, ("ended", "cancelled", None)),
        ({"sacct": "TIMEOUT\n"}, {}, ("ended", "timeout", None)),
        ({}, {"status": "1\n"}, ("ended", "ended", 1)),
        ({}, {"status-0": "0\n", "status-1": "75\n"}, ("ended", "ended", 75)),
        ({}, {"status-0": "75\n", "status": "0\n"}, ("ended", "ended", 0)),
        ({}, {}, ("unknown", "Slurm does not know it any more", None)),
    ],
)
def test_a_job_that_has_left_the_queue(answers: dict, files: dict, expected: tuple, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    gone = refusal("slurm_load_jobs error: Invalid job id specified")
    state = Slurm(Commands(squeue=gone, **answers)).state(submission("slurm"), tmp_path)
    assert (state.phase, state.said, state.status) == expected


def test_a_controller_that_does_not_answer_is_no_ended_job(tmp_path: Path) -> None:
    down = refusal("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        Slurm(Commands(squeue=down)).state(submission("slurm"), tmp_path)


def test_a_job_whose_number_did_not_reach_the_record_is_found_by_its_name(tmp_path: Path) -> None:
    lost = submission("slurm", job="")
    queue = Commands(squeue="RUNNING|None|n1\n", scancel="")
    assert Slurm(queue).state(lost, tmp_path).phase == "running"
    Slurm(queue).cancel(lost, tmp_path)
    assert "--name=tiny-0a1b2c-1" in queue.given[0][0]
    assert queue.given[1][0] == "scancel --name=tiny-0a1b2c-1"
    state = Slurm(Commands(squeue="")).state(lost, tmp_path)
    assert (state.phase, state.said) == ("unknown", "Slurm has not taken it")


def test_a_submission_that_may_have_been_taken_is_no_refusal(tmp_path: Path) -> None:
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    with pytest.raises(NoAnswerError):
        Slurm(Commands(sbatch=refusal(said))).submit(made)


def test_a_cancellation_reaches_the_array_and_the_job_after_it(tmp_path: Path) -> None:
    commands = Commands(scancel="")
    Slurm(commands).cancel(submission("slurm", job="12,13"), tmp_path)
    assert commands.given == [("scancel 12 13", "")]


def test_units_that_fit_no_node_are_refused(tmp_path: Path) -> None:
    made = job(tmp_path)
    Slurm(Commands()).check(made)
    for resources, said in (({"cpus": 2}, "a unit needs 2 CPUs"), ({"gpus": 0.5}, "resources.gpus is 0.5")):
        config = replace(made.config, resources=replace(made.config.resources, **resources))
        with pytest.raises(ConfigError, match=said):
            Slurm(Commands()).check(replace(made, config=config))


def test_the_log_is_followed_until_the_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "job.log"
    log.write_text("one\ntw")
    monkeypatch.setattr(slurm, "_ASK_EVERY_S", 0.0)
    steps = iter([lambda: log.write_text("one\ntwo\n"), lambda: log.write_text("one\ntwo\nthree"), lambda: None])
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: next(steps)())
    answers = iter(["RUNNING|None|n1\n", "", ""])

    def run(command, text):
        if command[0] == "squeue":
            return Completed(status=0, out=next(answers), err="")
        return Completed(status=0, out="JobState=COMPLETED", err="")

    assert list(Slurm(run).logs(submission("slurm"), tmp_path, follow=True)) == ["one", "two", "three"]
    assert list(Slurm(run).logs(submission("slurm"), tmp_path, follow=False)) == ["one", "two", "three"]


def test_the_lines_of_an_array_name_their_jobs(tmp_path: Path) -> None:
    (tmp_path / "job-0.log").write_text("a\n")
    (tmp_path / "job-1.log").write_text("b\n")
    (tmp_path / "close.log").write_text("c\n")
    assert list(Slurm(Commands()).logs(submission("slurm"), tmp_path, follow=False)) == ["0 | a", "1 | b", "close | c"]
