"""What `status`, `logs` and `cancel` read of batch jobs: the records of a store and what the clusters say of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goal_core.basics.errors import GoalError
from runners.cli.options import SweepArguments

if TYPE_CHECKING:
    from runners.cluster.standing import Standing
    from runners.store.submissions import Submission, Submissions

Site = Annotated[
    Path | None, typer.Option("--site", help="Settings of the cluster; default: ~/.config/goal-sweep/site.yaml.")
]


def submissions_of(
    sweep: str, set_: list[str] | None, store: str | None, site: Path | None = None
) -> tuple[Submissions, list[Submission]]:
    """The store's submissions and those of a sweep, oldest first. Reads neither data nor weights."""
    from runners.cluster import submission as jobs
    from runners.store import local_root
    from runners.store.submissions import Submissions

    loaded = jobs.load(sweep, SweepArguments(sweep, set_, store).overrides, jobs.site_file(site), "")
    records = Submissions(local_root(loaded.config.store))
    return records, records.of(loaded.config.name)


def chosen(records: Submissions, found: list[Submission], job: str | None) -> list[Submission]:
    """The submissions that a job's id, its beginning or the cluster's own id names; all where none is given.

    Raises:
        GoalError: there are none.
    """
    exact = [one for one in found if job and job in (one.id, one.job)]
    named = exact or [one for one in found if job is None or (job and one.id.startswith(job))]
    if not found:
        raise GoalError(f"nothing was submitted for this sweep from the store {records.root}")
    if not named:
        raise GoalError(f"no job {job!r} of this sweep; known: {', '.join(one.id for one in found)}")
    return named


def job_name(one: Submission) -> str:
    """A job as messages name it, with the cluster's own id where that is known."""
    return " ".join(filter(None, [one.to, "job", one.job]))


def job_lines(records: Submissions, found: list[Submission]) -> Iterator[str]:
    """A line on the newest job, and on each older one that lives; none where nothing was submitted."""
    for one in found:
        if one is found[-1] or not one.ended:
            known = _standing(one, records)
            if one is found[-1] or not known.state.is_over:
                yield _line(known)


def _line(known: Standing) -> str:
    one, state = known.submission, known.state
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.submitted))
    by = f" on {one.host}" if one.host else ""
    cancelled = "cancelled; " if one.cancelled and known.error else ""
    ended = f", exit status {state.status}" if state.status is not None else ""
    return f"{one.id}: {job_name(one)}, submitted {since}{by}: {cancelled}{state.said}{ended}"


def jobs_as_json(records: Submissions, found: list[Submission]) -> str:
    """Every job of a sweep with its state."""
    rows = [
        {**asdict(one), "phase": state.phase, "state": state.said, "status": state.status}
        for one, state in ((one, _standing(one, records).state) for one in found)
    ]
    return json.dumps(rows, indent=2)


def _standing(one: Submission, records: Submissions) -> Standing:
    from runners.cluster.standing import standing

    return standing(one, records)


def show_job_log(records: Submissions, found: list[Submission], job: str | None, *, follow: bool) -> None:
    """Print what a job has printed."""
    from runners.cluster import submission as jobs

    one = chosen(records, found, job)[-1]
    for line in jobs.backend_of(one.to).logs(one, records.files(one.id), follow=follow):
        print(line, flush=True)
