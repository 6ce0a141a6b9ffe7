"""Where a submission stands, by its record and its cluster, and whether a new job of its sweep may begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from goal_core.basics.errors import GoalError
from runners.cluster.backend import Backend, Job, JobState, NoAnswerError
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
    error = ""
    if submission.ended:
        state = JobState(phase="ended", said=submission.ended, status=submission.exit_status)
    else:
        try:
            state = backend_of(submission.to).state(submission, records.files(submission.id))
        except GoalError as failure:
            error = str(failure)
            state = JobState(phase="unknown", said=error)
    return Standing(submission=submission, state=state, error=error)


def send(
    make: Callable[[str], Job],
    own: Submission,
    backend: Backend,
    records: Submissions,
    cancel: str,
    say: Callable[[str], None],
) -> Submission:
    """Send the job of a submission, if no other job of the sweep lives; else take the submission back.

    Args:
        make: makes the job with an id.
        own: the submission, begun.
        backend: the cluster.
        records: the submissions of the store.
        cancel: the command that cancels jobs of the sweep, for messages.
        say: shows a line to the user.

    Raises:
        SubmissionError: another job of the sweep lives or may live; names it.
        NoAnswerError: the cluster may have taken the job. The record stays.
        ClusterError: the cluster refused it, or cannot be reached.
    """
    try:
        others = [standing(one, records) for one in records.before(own) if not one.ended]
        for known in others:
            _check_over(known, own, records, cancel)
        for known in others:
            how, other = known.state.said, known.submission
            if known.error:
                how = "cancelled"
                say(f"{other.id} was cancelled and counts as ended, because its cluster is gone: {known.error}")
            records.ended(other, how, known.state.status)
        return records.sent(own, backend.submit(make(own.id)))
    except NoAnswerError:
        raise
    except BaseException:
        records.withdraw(own)
        raise


def _check_over(known: Standing, own: Submission, records: Submissions, cancel: str) -> None:
    """Check that a job is over, though its record does not say so yet.

    Raises:
        SubmissionError: it lives, or may live.
    """
    other, forget = known.submission, f"{cancel} {known.submission.id} --forget"
    if known.error and known.may_live:
        raise SubmissionError(f"{other.id} may still run, but {known.error}; if it is gone: {forget}")
    if known.may_live:
        raise SubmissionError(f"{other.id} of this sweep is still in the queue or running; {cancel} ends it")
    if known.state.phase == "unknown" and records.is_being_sent(other, own):
        raise SubmissionError(
            f"{other.id} is being submitted by {other.user} on {other.host}; if that command was killed: {forget}"
        )
