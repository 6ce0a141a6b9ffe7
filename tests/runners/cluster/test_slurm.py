from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.cluster import slurm
from goal_sweep.runners.cluster.backend import ClusterError, NoAnswerError
from goal_sweep.runners.cluster.slurm import Slurm, render_sbatch
from tests.helpers.cluster_cases import Commands, job, refusal, submission


def test_a_job_is_queued_with_its_files_beside_it(tmp_path: Path) -> None:
    commands = Commands(sbatch="12;cluster\n")
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    assert Slurm(commands).submit(made) == "12"
    script = made.folder / "job.sbatch"
    assert [line for line, _ in commands.given] == [f"sbatch --test-only {script}", f"sbatch --parsable {script}"]
    assert (made.folder / "job.sbatch").read_text() == render_sbatch(made)
    assert (made.folder / "sweep.yaml").read_text() == made.sweep_text


def test_an_array_begins_only_when_the_job_that_follows_it_is_queued_too(tmp_path: Path) -> None:
    after = "sbatch --parsable --dependency=afterany:12"
    commands = Commands({after: "13\n", "sbatch --parsable --hold": "12\n", "scontrol release": ""})
    made = job(tmp_path, "slurm.array=2", store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    assert Slurm(commands).submit(made) == "12,13"
    assert commands.given[-1][0] == "scontrol release 12"
    assert "-P -m goal_sweep.runners.cli sync" in (made.folder / "close.sbatch").read_text()
    alone = Commands({after: refusal("no"), "sbatch --parsable --hold": "12\n", "scancel": ""})
    with pytest.raises(ClusterError, match=r"cannot submit to Slurm: no$"):
        Slurm(alone).submit(made)
    assert alone.given[-1][0] == "scancel --name=tiny-0a1b2c-1 12"
    held = Commands({after: refusal("no"), "sbatch --parsable --hold": "12\n"})
    with pytest.raises(NoAnswerError, match="no; job 12 is held in the queue"):
        Slurm(held).submit(made)


def test_a_refusal_is_one_line(tmp_path: Path) -> None:
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    said = "sbatch: error: Batch job submission failed: Invalid account"
    with pytest.raises(ClusterError) as refused:
        Slurm(Commands(sbatch=refusal(f"sbatch: warning: x\n{said}"))).submit(made)
    assert str(refused.value) == f"cannot submit to Slurm: {said}"


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        ("allocation failure: Requested time limit is invalid (missing or exceeds some limit)", True),
        ("allocation failure: Requested node configuration is not available", True),
        ("allocation failure: Required node not available (down, drained or reserved)", False),
    ],
)
def test_more_than_a_partition_gives_is_refused_before_it_is_queued(
    said: str, is_refused: bool, tmp_path: Path
) -> None:
    commands = Commands({"sbatch --test-only": refusal(said), "sbatch --parsable": "12\n"})
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    if not is_refused:
        assert Slurm(commands).submit(made) == "12"
        return
    with pytest.raises(ClusterError, match=re.escape(said)):
        Slurm(commands).submit(made)
    assert len(commands.given) == 1


def test_a_machine_without_slurm_lacks_what_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"^sbatch is not installed"):
        Slurm().submit(made)


@pytest.mark.parametrize(
    ("queue", "phase", "said"),
    [
        ("PENDING|Priority||tiny-0a1b2c-1\n", "pending", "pending (Priority)"),
        ("RUNNING|None|n[1-2]|tiny-0a1b2c-1\n", "running", "running on n[1-2]"),
        (
            "".join(f"{one}|tiny-0a1b2c-1\n" for one in ("RUNNING|None|n1", "RUNNING|None|n1", "PENDING|Dependency|")),
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
        ({"squeue": "COMPLETED|None|n1|tiny-0a1b2c-1\n"}, {"status": "0\n"}, ("ended", "completed", 0)),
        ({"squeue": "CANCELLED|None||tiny-0a1b2c-1\n"}, {}, ("ended", "cancelled", None)),
        ({"sacct": "TIMEOUT\n"}, {}, ("ended", "timeout", None)),
        ({}, {"status": "1\n"}, ("ended", "ended", 1)),
        ({}, {"status-0": "0\n", "status-1": "75\n"}, ("ended", "ended", 75)),
        ({}, {"status-0": "75\n", "status": "0\n"}, ("ended", "ended", 0)),
        ({}, {"job.log": "begins\n"}, ("ended", "ended", None)),
        ({}, {}, ("unknown", "Slurm does not know it any more", None)),
    ],
)
def test_a_job_that_has_left_the_queue(
    answers: dict[str, Any], files: dict[str, str], expected: tuple[Any, ...], tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    gone = refusal("slurm_load_jobs error: Invalid job id specified")
    state = Slurm(Commands(answers, squeue=gone) if "squeue" not in answers else Commands(answers)).state(
        submission("slurm"), tmp_path
    )
    assert (state.phase, state.said, state.status) == expected


def test_another_job_with_the_same_number_is_left_alone(tmp_path: Path) -> None:
    commands = Commands(squeue="RUNNING|None|n1|my-other-work\n", scancel="")
    state = Slurm(commands).state(submission("slurm"), tmp_path)
    assert (state.phase, state.said) == ("unknown", "Slurm's job 7 is another one now (my-other-work)")
    Slurm(commands).cancel(submission("slurm"), tmp_path)
    assert commands.given[-1][0] == "scancel --name=tiny-0a1b2c-1 7"


def test_a_controller_that_does_not_answer_is_no_ended_job(tmp_path: Path) -> None:
    down = refusal("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    with pytest.raises(ClusterError, match="Unable to contact slurm controller"):
        Slurm(Commands(squeue=down)).state(submission("slurm"), tmp_path)


def test_a_job_whose_number_did_not_reach_the_record_is_found_by_its_name(tmp_path: Path) -> None:
    lost = replace(submission("slurm", job=""), user="me")
    queue = Commands(squeue="RUNNING|None|n1|tiny-0a1b2c-1\n", scancel="")
    assert Slurm(queue).state(lost, tmp_path).phase == "running"
    Slurm(queue).cancel(lost, tmp_path)
    assert "--name=tiny-0a1b2c-1 --user=me" in queue.given[0][0]
    assert queue.given[1][0] == "scancel --name=tiny-0a1b2c-1 --user=me"
    state = Slurm(Commands(squeue="")).state(lost, tmp_path)
    assert (state.phase, state.said) == ("unknown", "Slurm has not taken it")
    (tmp_path / "status").write_text("0\n")
    state = Slurm(Commands(squeue="")).state(lost, tmp_path)
    assert (state.phase, state.said, state.status) == ("ended", "ended", 0)


def test_a_submission_that_may_have_been_taken_is_no_refusal(tmp_path: Path) -> None:
    made = job(tmp_path, store=tmp_path / "store")
    made.folder.mkdir(parents=True)
    said = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    with pytest.raises(NoAnswerError):
        Slurm(Commands(sbatch=refusal(said))).submit(made)


def test_a_cancellation_reaches_the_array_and_the_job_after_it(tmp_path: Path) -> None:
    commands = Commands(scancel="")
    Slurm(commands).cancel(submission("slurm", job="12,13"), tmp_path)
    assert commands.given == [("scancel --name=tiny-0a1b2c-1 12 13", "")]


def test_units_that_fit_no_node_are_refused(tmp_path: Path) -> None:
    made = job(tmp_path)
    Slurm(Commands()).check(made)
    for resources, said in (({"cpus": 2}, "a unit needs 2 CPU"), ({"gpus": 0.5}, "and 0.5 GPU")):
        config = replace(made.config, resources=replace(made.config.resources, **resources))
        with pytest.raises(ConfigError, match=said):
            Slurm(Commands()).check(replace(made, config=config))


class Clock:
    """Time that passes only by sleeping; each second something may happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
        self.now, self.steps = 0.0, iter(steps)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        next(self.steps, lambda: None)()


def test_the_log_is_followed_until_the_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "job.log"
    log.write_text("one\ntw")
    queue = Commands(squeue="RUNNING|None|n1|tiny-0a1b2c-1\n")

    def end() -> None:
        log.write_text("one\ntwo\nthree")
        (tmp_path / "status").write_text("0\n")

    def leave() -> None:
        queue.answers["squeue"] = "COMPLETED|None|n1|tiny-0a1b2c-1\n"

    Clock(monkeypatch, lambda: log.write_text("one\ntwo\n"), lambda: None, end, lambda: None, leave)
    assert list(Slurm(queue).logs(submission("slurm"), tmp_path, follow=True)) == ["one", "two", "three"]
    assert list(Slurm(queue).logs(submission("slurm"), tmp_path, follow=False)) == ["one", "two", "three"]


def test_the_log_of_a_job_that_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Commands(squeue="PENDING|Resources||tiny-0a1b2c-1\n")
    waiting = "waiting: pending (Resources)"
    assert list(Slurm(queue).logs(submission("slurm"), tmp_path, follow=False)) == [waiting]

    def start() -> None:
        queue.answers["squeue"] = "RUNNING|None|n1|tiny-0a1b2c-1\n"
        (tmp_path / "job.log").write_text("one\n")

    def end() -> None:
        queue.answers["squeue"] = "COMPLETED|None|n1|tiny-0a1b2c-1\n"

    Clock(monkeypatch, *[lambda: None] * 20, start, end)
    assert list(Slurm(queue).logs(submission("slurm"), tmp_path, follow=True)) == [waiting, "one"]
    (tmp_path / "job.log").unlink()
    assert list(Slurm(queue).logs(submission("slurm"), tmp_path, follow=True)) == ["no output: completed"]


def test_a_store_in_a_bucket_needs_its_variables_on_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in slurm._BUCKET_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    far = replace(job(tmp_path), store="s3://bucket/store")
    (note,) = Slurm(Commands()).check(far)  # the nodes may have credentials of their own
    assert note.startswith(f"the nodes must see {far.folder}, where the job's script and output lie; GOAL_SWEEP_CACHE")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://s3")
    with pytest.raises(
        ConfigError, match=r"would not get AWS_ENDPOINT_URL of this shell; name them in cluster\.slurm\.pass"
    ):
        Slurm(Commands()).check(far)
    Slurm(Commands()).check(job(tmp_path))
    for given in ("slurm.pass_environment=[AWS_ENDPOINT_URL]", "slurm.setup=['export AWS_ENDPOINT_URL=x']"):
        Slurm(Commands()).check(replace(job(tmp_path, given), store="s3://bucket/store"))


def test_gpus_that_nothing_would_use_are_named(tmp_path: Path) -> None:
    made = job(tmp_path, "slurm.gpus_per_node=1")
    (note,) = Slurm(Commands()).check(made)
    assert "its units train on the CPU" in note
    assert Slurm(Commands()).check(job(tmp_path)) == []


def test_the_sweep_file_is_printed_with_the_script(tmp_path: Path) -> None:
    made = job(tmp_path)
    assert Slurm().render(made) == f"{render_sbatch(made)}\n# sweep.yaml\n{made.sweep_text}"


def test_the_lines_of_an_array_name_their_jobs(tmp_path: Path) -> None:
    (tmp_path / "job-0.log").write_text("a\n")
    (tmp_path / "job-1.log").write_text("b\n")
    (tmp_path / "close.log").write_text("c\n")
    assert list(Slurm(Commands()).logs(submission("slurm"), tmp_path, follow=False)) == ["0 | a", "1 | b", "close | c"]
