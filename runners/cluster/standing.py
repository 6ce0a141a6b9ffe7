"""Where a submission stands, by its record and its cluster, and whether a new job of its sweep may begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from goal_core.basics.errors import GoalError
from runners.cluster.backend import Backend, ClusterError, Job, JobState, NoAnswerError
from runners.cluster.submission import SubmissionError, backend_of
from runners.store.submissions import Submission, Submissions


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a job now."""

    submission: Submission
    state: JobState
    error: str = ""
    """Why its cluster could not be asked; then the state is `unknown` and the job may live."""

    @property
    def may_live(self) -> bool:
        """Whether something of the job may wait or run. A cluster that agreed to end it before it went away has."""
        return not self.submission.cancelled if self.error else not self.state.is_over


def standing(submission: Submission, records: Submissions) -> Standing:
    """Ask the cluster of a job, unless its record says how it ended. Changes nothing."""
    if submission.ended:
        state = JobState(phase="ended", said=submission.ended, status=submission.exit_status)
        return Standing(submission=submission, state=state)
    try:
        if submission.damaged and submission.to != "slurm":
            raise ClusterError(f"its record {records.path(submission.id)} is damaged and does not tell the cluster")
        state = backend_of(submission.to).state(submission, records.files(submission.id))
    except GoalError as error:
        state = JobState(phase="unknown", said=str(error))
        return Standing(submission=submission, state=state, error=str(error))
    if submission.damaged:
        path = records.path(submission.id)
        state = JobState(phase=state.phase, said=f"{state.said} (its record {path} is damaged)", status=state.status)
    return Standing(submission=submission, state=state)


def send(
    draft: Job,
    make: Callable[[str], Job],
    backend: Backend,
    to: str,
    records: Submissions,
    cancel: str,
    say: Callable[[str], None],
) -> Submission:
    """Record a submission and send its job, if no other job of the sweep lives.

    Args:
        draft: the job, with an id that another submission may take first.
        make: makes the job with an id.
        backend: the cluster.
        to: the kind of cluster.
        records: the submissions of the store.
        cancel: the command that cancels jobs of the sweep, for messages.
        say: shows a line to the user.

    Raises:
        SubmissionError: another job of the sweep lives or may live; names it.
        NoAnswerError: the cluster may have taken the job. The record stays.
        ClusterError: the cluster refused it, or cannot be reached.
    """
    own = records.begin(draft.config.name, to, draft.code, backend.place(draft))
    try:
        for other in list(_ended_before(own, records, cancel)):
            one, how = other.submission, other.state.said
            if other.error:
                how = "cancelled"
                say(f"{one.id} was cancelled and counts as ended, because its cluster is gone: {other.error}")
            records.ended(one, how, other.state.status)
    except BaseException:
        records.withdraw(own)
        raise
    try:
        return records.sent(own, backend.submit(make(own.id)))
    except NoAnswerError:
        raise
    except GoalError:
        records.withdraw(own)
        raise


def _ended_before(own: Submission, records: Submissions, cancel: str) -> Iterator[Standing]:
    """The submissions before one that are over, though their records do not say so yet.

    Raises:
        SubmissionError: one lives, or may live.
    """
    for other in records.before(own):
        if other.ended:
            continue
        found, forget = standing(other, records), f"{cancel} {other.id} --forget"
        if other.damaged:
            raise SubmissionError(
                f"{other.id}: {found.state.said}; {cancel} {other.id} ends it, and with --forget it counts as ended"
            )
        if found.error and found.may_live:
            raise SubmissionError(f"{other.id} may still run, but {found.error}; if it is gone: {forget}")
        if found.may_live:
            raise SubmissionError(f"{other.id} of this sweep is still in the queue or running; {cancel} ends it")
        if found.state.phase == "unknown" and records.is_being_sent(other, own):
            raise SubmissionError(
                f"{other.id} is being submitted by {other.user} on {other.host}; if that command was killed: {forget}"
            )
        yield found
