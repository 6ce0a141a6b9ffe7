"""Whether a job may begin beside what was submitted before, with a cluster that only pretends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.runners.cluster import submission as submitting
from goal_sweep.runners.cluster.backend import ClusterError, Job, JobState, NoAnswerError, run_command
from goal_sweep.runners.cluster.submission import SubmissionError, send, standings
from goal_sweep.runners.store.submissions import Submission, Submissions
from tests.helpers.cluster_cases import job


class Cluster:
    """Takes jobs, and knows those that it has taken."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.taken: list[str] = []
        self.refusal = refusal

    def place(self, sent: Job) -> dict[str, str]:
        return {}

    def submit(self, sent: Job) -> str:
        (sent.folder / "job.sbatch").touch()
        if self.refusal:
            raise self.refusal
        self.taken.append(sent.id)
        return str(len(self.taken))

    def state(self, submission: Submission, folder: Path) -> JobState:
        if submission.id in self.taken:
            return JobState(phase="running", said="running")
        return JobState(phase="unknown", said="not taken")


@pytest.fixture
def sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Cluster], Submission]:
    """Sends a job of one and the same sweep to a cluster."""
    draft, records = job(tmp_path, store=tmp_path / "store"), Submissions(tmp_path / "store")

    def make(submission_id: str) -> Job:
        return replace(draft, id=submission_id, folder=records.files(submission_id))

    def act(cluster: Cluster) -> Submission:
        backend: Any = cluster
        monkeypatch.setattr(submitting, "backend_of", lambda *_: backend)
        own = records.begin("tiny", "slurm", "", {})
        return send(make, own, backend, records, "goal-sweep cancel tiny", print)

    return act


class Silent:
    """A cluster that does not answer, and is asked for jobs."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def state(self, submission: Submission, folder: Path) -> JobState:
        self.asked.append(submission.id)
        raise NoAnswerError("scontrol does not answer (waited 10 s)")


def test_a_silent_cluster_is_asked_once_for_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records, cluster, waits = Submissions(tmp_path / "store"), Silent(), set[float]()

    def backend_of(kind: str, run: Any) -> Silent:
        waits.add(run.keywords["seconds"])
        return cluster

    jobs = [records.begin("tiny", "slurm", "", {"cluster": name}) for name in ("a", "a", "b", "a")]
    jobs.append(records.note(jobs[3], ended="completed", exit_status=0))
    monkeypatch.setattr(submitting, "backend_of", backend_of)
    found = [(state.phase, state.said) for _, state in standings(jobs, records)]
    assert found == [("silent", "scontrol does not answer (waited 10 s)")] * 4 + [("ended", "completed")]
    assert cluster.asked == [jobs[0].id, jobs[2].id]
    assert max(waits) <= 15


def test_a_command_that_asks_is_not_waited_for_without_end() -> None:
    with pytest.raises(NoAnswerError, match=r"sleep does not answer \(waited 0 s\)"):
        run_command(["sleep", "60"], seconds=0.1)


def test_a_sweep_whose_job_runs_is_not_sent_again(sending: Callable[[Cluster], Submission], tmp_path: Path) -> None:
    cluster = Cluster()
    first = sending(cluster)
    with pytest.raises(SubmissionError, match=rf"{first.id} of this sweep is running"):
        sending(cluster)
    assert cluster.taken == [first.id]
    assert {path.stem for path in Submissions(tmp_path / "store").folder.iterdir()} == {first.id}


def test_of_two_that_are_sent_at_the_same_instant_the_first_goes(
    sending: Callable[[Cluster], Submission], tmp_path: Path
) -> None:
    cluster, records = Cluster(), Submissions(tmp_path / "store")
    first = records.begin("tiny", "slurm", "", {})
    with pytest.raises(SubmissionError, match=rf"{first.id} of this sweep is being submitted"):
        sending(cluster)
    records.note(first, submitted=first.submitted - 61)  # whose command was killed before it sent anything
    assert sending(cluster).id == cluster.taken[0] != first.id


@pytest.mark.parametrize(("refusal", "is_kept"), [(ClusterError("no"), False), (NoAnswerError("late"), True)])
def test_a_refused_job_leaves_nothing_and_one_that_may_be_taken_its_record(
    refusal: Exception, is_kept: bool, sending: Callable[[Cluster], Submission], tmp_path: Path
) -> None:
    with pytest.raises(type(refusal)):
        sending(Cluster(refusal))
    assert any((tmp_path / "store" / "submissions").iterdir()) is is_kept
