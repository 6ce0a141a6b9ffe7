"""Whether a job may begin beside what was submitted before, with a cluster that only pretends."""

from collections.abc import Callable
from pathlib import Path

import pytest

from goal_sweep.runners.cluster import submission as submitting
from goal_sweep.runners.cluster.backend import (
    ClusterError,
    Job,
    JobState,
    NoAnswerError,
    Submission,
    Submissions,
    run_command,
)
from goal_sweep.runners.cluster.submission import send, states
from tests.helpers.cluster_cases import job


class Cluster:
    """Takes jobs, and knows those that it has taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.asked: list[str] = []
        self.fault: Exception | None = None

    def submit(self, sent: Job) -> str:
        (sent.folder / "job.sbatch").touch()
        if self.fault:
            raise self.fault
        self.taken.append(sent.id)
        return str(len(self.taken))

    def state(self, submission: Submission, folder: Path) -> JobState:
        self.asked.append(submission.id)
        if self.fault:
            raise self.fault
        return JobState(phase="running" if submission.id in self.taken else "ended", said="as it is")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(submitting, "BACKENDS", {"slurm": made, "ray": made})
    return made


@pytest.fixture
def sending(tmp_path: Path, cluster: Cluster) -> Callable[[], tuple[Submission, list[str]]]:
    """Sends a job of one and the same sweep."""
    draft, records = job(tmp_path, store=tmp_path / "store"), Submissions(tmp_path / "store")
    return lambda: send(draft, "slurm", records, "goal-sweep cancel tiny")


def test_a_silent_cluster_is_asked_once_for_all_jobs(tmp_path: Path, cluster: Cluster) -> None:
    records, cluster.fault = Submissions(tmp_path / "store"), NoAnswerError("it does not answer")
    jobs = [records.begin("tiny", "ray", "", address) for address in ("a", "a", "b", "a")]
    found = [(state.phase, state.said) for _, state in states(jobs, records)]
    assert found == [("silent", "it does not answer")] * 4
    assert cluster.asked == [jobs[0].id, jobs[2].id]


def test_a_command_that_asks_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goal_sweep.runners.cluster.backend._ANSWER_S", 0.1)
    with pytest.raises(NoAnswerError, match=r"sleep does not answer \(waited 0 s\)"):
        run_command(["sleep", "60"])


@pytest.mark.parametrize(("fault", "is_kept"), [(ClusterError("no"), False), (NoAnswerError("late"), True)])
def test_a_refused_job_leaves_nothing_and_one_that_may_be_taken_its_record(
    fault: Exception,
    is_kept: bool,
    sending: Callable[[], tuple[Submission, list[str]]],
    cluster: Cluster,
    tmp_path: Path,
) -> None:
    cluster.fault = fault
    with pytest.raises(type(fault)):
        sending()
    assert any((tmp_path / "store" / "submissions").iterdir()) is is_kept
    cluster.fault = None
    assert sending()[0].id == cluster.taken[-1]
