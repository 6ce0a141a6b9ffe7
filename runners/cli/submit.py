"""The commands for batch jobs: `submit` and `cancel`, and what `status` and `logs` say of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from goal_core.errors import DataError, GoalError, WeightsError
from runners.cli.options import Set, StoreDir, Sweep, SweepArguments, Uri, console

if TYPE_CHECKING:
    from runners.cluster.backend import JobState
    from runners.store.submissions import Submission
    from sweeps import ClusterSweep

submitting = typer.Typer()
Kind = Literal["ray", "slurm", "kubernetes"]
Site = Annotated[
    Path | None, typer.Option("--site", help="Settings of the cluster; default: ~/.config/goal-sweep/site.yaml.")
]


@submitting.command()
def submit(
    sweep: Annotated[str, typer.Argument(help="A sweep file, or the name of one that ships with goal-sweep.")] = "",
    to: Annotated[Kind | None, typer.Option("--to", help="Kind of cluster.")] = None,
    site: Site = None,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    array: Annotated[
        int | None, typer.Option("--array", min=1, help="Slurm: this many independent jobs that share the store.")
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Print exactly what would be sent; send nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also retry failed cells.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    example: Annotated[Kind | None, typer.Option("--example", help="Print an example of a site file.")] = None,
) -> None:
    """Launch a sweep as a batch job, which goes on without this shell until the sweep is done.

    Example: goal-sweep submit quickstart.yaml --to slurm --set cluster.slurm.time=4:00:00
    """
    from runners.cluster import submission as jobs
    from runners.cluster.backend import NoAnswerError
    from runners.execution.inputs import code_digest
    from runners.store import local_root
    from runners.store.submissions import Submissions

    if example is not None:
        print(jobs.example_site(example), end="")
        return
    if not sweep or to is None:
        raise GoalError("give a sweep and --to ray, slurm or kubernetes (see goal-sweep submit --help)")
    if array is not None and to != "slurm":
        raise GoalError("--array is a form of Slurm jobs; on Ray and Kubernetes the workers share the sweep")
    overrides = SweepArguments(sweep, set_, store, tracking_uri).overrides
    overrides += [] if array is None else [f"cluster.slurm.array={array}"]
    loaded = jobs.load(sweep, overrides, jobs.site_file(site), to)
    backend = jobs.backend_of(to)
    options = [*(["--retry-failed"] if retry_failed else []), *(["--fail-fast"] if fail_fast else [])]
    records = Submissions(local_root(loaded.config.store))
    draft = jobs.job_of(loaded, records.next_id(loaded.config.name), code_digest(), options)
    backend.check(draft)
    if show:
        print(backend.render(draft), end="")
        return
    _check_here(loaded)
    if alive := jobs.living(records.of(loaded.config.name), records.root):
        raise GoalError(
            f"{alive[0].id} of this sweep is still in the queue or running; goal-sweep cancel {sweep} ends it"
        )
    submission = records.begin(loaded.config.name, to, draft.code, backend.place(draft))
    try:
        job = backend.submit(jobs.job_of(loaded, submission.id, draft.code, options))
    except GoalError as error:
        if not isinstance(error, NoAnswerError):  # or else the job may have been taken; status tells
            records.withdraw(submission)
        raise
    records.sent(submission, job)
    again = SweepArguments(sweep, [one for one in set_ or () if not one.startswith("cluster.")], store)
    console.print(f"{submission.id}: submitted to {to} as job {job}", soft_wrap=True)
    for verb, words in (("status", ()), ("logs", ("--job", "--follow")), ("cancel", ())):
        console.print(f"  {again.command(verb, *words)}", soft_wrap=True)


def _check_here(loaded: ClusterSweep) -> None:
    """Check data and weights if they are on this machine; the cluster's nodes check what they have in any case."""
    from runners.launch.opened_sweep import open_config

    try:
        open_config(loaded.config).check_trainable()
    except (DataError, WeightsError) as error:
        console.print(f"not checked here: {error}", soft_wrap=True)


@submitting.command()
def cancel(
    sweep: Sweep,
    job: Annotated[
        str | None, typer.Argument(help="The job's id or its beginning; default: the one that lives.")
    ] = None,
    site: Site = None,
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """End a batch job of a sweep. Its running cells save first; submit continues from there.

    Example: goal-sweep cancel quickstart.yaml
    """
    from runners.cluster import submission as jobs

    records, found = submissions_of(sweep, set_, store, site)
    chosen = _chosen(found, job)
    alive = chosen if job is not None else jobs.living(chosen, records.root)
    if not alive:
        raise GoalError(f"no job of {sweep} is in a queue or running")
    for one in alive:
        jobs.backend_of(one.to).cancel(one, records.files(one.id))
        console.print(f"{one.id}: {one.to} job {one.job} is being cancelled; its running cells save", soft_wrap=True)


def submissions_of(
    sweep: str, set_: list[str] | None, store: str | None, site: Path | None = None
) -> tuple[Any, list[Submission]]:
    """The store's submissions and those of a sweep, oldest first. Reads neither data nor weights."""
    from runners.cluster import submission as jobs
    from runners.store import local_root
    from runners.store.submissions import Submissions

    loaded = jobs.load(sweep, SweepArguments(sweep, set_, store).overrides, jobs.site_file(site), "")
    records = Submissions(local_root(loaded.config.store))
    return records, records.of(loaded.config.name)


def _chosen(found: list[Submission], job: str | None) -> list[Submission]:
    chosen = [one for one in found if job is None or one.id.startswith(job) or one.job == job]
    if not chosen:
        told = f"known: {', '.join(one.id for one in found)}" if found else "nothing was submitted"
        raise GoalError(f"no job {job!r} of this sweep; {told}" if job else "nothing was submitted for this sweep")
    return chosen


def job_lines(records: Any, found: list[Submission]) -> Iterator[str]:
    """A line on the newest job, the only one that may live; none where nothing was submitted."""
    for one, state in _states(records, found[-1:]):
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.submitted))
        ended = f", exit status {state.status}" if state.status is not None else ""
        yield f"{one.id}: {one.to} job {one.job or '?'}, submitted {since} on {one.host}: {state.said}{ended}"


def jobs_as_json(records: Any, found: list[Submission]) -> str:
    """Every job of a sweep with its state."""
    rows = [
        {**asdict(one), "phase": state.phase, "state": state.said, "status": state.status}
        for one, state in _states(records, found)
    ]
    return json.dumps(rows, indent=2)


def _states(records: Any, found: list[Submission]) -> Iterator[tuple[Submission, JobState]]:
    from runners.cluster import submission as jobs
    from runners.cluster.backend import ClusterError, JobState

    for one in found:
        try:
            yield one, jobs.backend_of(one.to).state(one, records.files(one.id))
        except ClusterError as error:
            yield one, JobState(phase="unknown", said=str(error))


def show_job_log(records: Any, found: list[Submission], job: str | None, *, follow: bool) -> None:
    """Print what a job has printed."""
    from runners.cluster import submission as jobs

    one = _chosen(found, job)[-1]
    for line in jobs.backend_of(one.to).logs(one, records.files(one.id), follow=follow):
        print(line, flush=True)
