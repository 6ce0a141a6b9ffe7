"""Batch jobs: the commands `submit` and `cancel`, and what `status` and `logs` show of jobs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import DataError, GoalError, WeightsError, printable
from goal_sweep.runners.cli.options import Set, StoreDir, Sweep, SweepArguments, Trust, Uri, console

if TYPE_CHECKING:
    from goal_sweep.runners.store.submissions import Submission, Submissions
    from goal_sweep.sweeps import ClusterSweep

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
    show: Annotated[bool, typer.Option("--print", help="Print exactly what would be sent; send nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also retry failed cells.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    trust_plugins: Trust = False,
    example: Annotated[Kind | None, typer.Option("--example", help="Print an example of a site file.")] = None,
) -> None:
    """Launch a sweep as a batch job, which goes on without this shell until the sweep is done.

    Example: goal-sweep submit quickstart.yaml --to slurm --set cluster.slurm.time=4:00:00
    """
    if example is not None:
        from goal_sweep.runners.cluster.submission import example_site

        print(example_site(example), end="")
        return
    if not sweep or to is None:
        raise GoalError("give a sweep and --to ray, slurm or kubernetes (see goal-sweep submit --help)")
    options = [*(["--retry-failed"] if retry_failed else []), *(["--fail-fast"] if fail_fast else [])]
    arguments = SweepArguments(sweep, set_, store, tracking_uri, trust_plugins)
    _submit(arguments, to, site, options, show=show)


def _submit(arguments: SweepArguments, to: Kind, site: Path | None, options: list[str], *, show: bool) -> None:
    """Check a job, and print or send it."""
    from goal_sweep.runners.cluster import submission as jobs
    from goal_sweep.runners.execution.inputs import code_digest
    from goal_sweep.runners.store import local_root
    from goal_sweep.runners.store.submissions import Submissions
    from goal_sweep.sweeps import load_for_cluster

    loaded = load_for_cluster(
        arguments.sweep, arguments.overrides, site=jobs.site_file(site), kind=to, trusted=arguments.trusted
    )
    name, store, code, backend = loaded.config.name, loaded.config.store, code_digest(), jobs.backend_of(to)
    records = Submissions(local_root(store))
    make = partial(jobs.job_of, loaded, code=code, options=options)
    draft = make(records.next_id(name))
    notes = backend.check(draft)
    if show:
        print(backend.render(draft), end="")
        return
    _check_here(loaded)
    for note in notes:
        _note(note)
    kept = [one for one in arguments.set_ or () if not one.startswith("cluster.")]
    cancel = SweepArguments(arguments.sweep, kept, arguments.store).command("cancel")
    own = records.begin(name, to, code, backend.place(draft))
    sent = jobs.send(make, own, backend, records, cancel, _note)
    console.print(f"{sent.id}: submitted to {to} as job {sent.job}")
    # The same sweep and store, named so that a command works in any folder.
    path, place = Path(arguments.sweep).expanduser(), store if "://" in store else str(local_root(store))
    sweep = str(path.absolute()) if path.is_file() else arguments.sweep
    anywhere = SweepArguments(sweep, [one for one in kept if not one.startswith("store=")], place)
    for verb, words in (("status", ()), ("logs", ("--job", "--follow")), ("cancel", ())):
        console.print(f"  {anywhere.command(verb, *words)}")


def _note(text: str) -> None:
    console.print(f"note: {text}")


def _check_here(loaded: ClusterSweep) -> None:
    """Check data and weights if they are on this machine; the cluster's nodes check what they have in any case."""
    from goal_sweep.runners.launch.opened_sweep import open_config

    try:
        open_config(loaded.config).check_trainable()
    except (DataError, WeightsError) as error:
        console.print(f"not checked here: {error}")


@submitting.command()
def cancel(
    sweep: Sweep,
    job: Annotated[
        str | None, typer.Argument(help="The job's id or its beginning; default: the one that lives.")
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Do not ask the cluster of the job any more.")] = False,
    site: Site = None,
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """End a batch job of a sweep. Its running cells save first; submit continues from there.

    Example: goal-sweep cancel quickstart.yaml
    """
    from goal_sweep.runners.cluster.submission import backend_of, standing

    records, known = submissions_of(sweep, set_, store, site)
    asked = [one for one in chosen(records, known, job) if job is not None or not one.ended]
    command, done = SweepArguments(sweep, set_, store).command("cancel"), False
    for one in asked:
        if forget:
            records.note(one, ended="forgotten")
            console.print(f"{one.id}: forgotten; should it still run, the next job waits for it")
            done = True
            continue
        state = standing(one, records)
        if state.phase == "silent":
            raise GoalError(f"{one.id}: {state.said}; if it is gone: {command} {one.id} --forget")
        if not state.is_over:
            backend_of(one.to).cancel(one, records.files(one.id))
            how = "is being cancelled; its running cells save" if state.phase == "running" else "leaves the queue"
            console.print(f"{one.id}: {one.to} job {one.job}".rstrip() + f" {how}")
            done = True
        elif job is not None and len(asked) == 1:
            raise GoalError(f"{one.id} is over: {state.said}")
    if not done:
        raise GoalError(f"no job of {sweep} is in a queue or running")


def submissions_of(
    sweep: str, set_: list[str] | None, store: str | None, site: Path | None = None
) -> tuple[Submissions, list[Submission]]:
    """The store's submissions and those of a sweep, oldest first. Reads neither data nor weights."""
    from goal_sweep.runners.cluster.submission import site_file
    from goal_sweep.runners.store import local_root
    from goal_sweep.runners.store.submissions import Submissions
    from goal_sweep.sweeps import load_places

    places = load_places(sweep, SweepArguments(sweep, set_, store).overrides, site=site_file(site))
    records = Submissions(local_root(places.store))
    return records, records.of(places.name)


def chosen(records: Submissions, known: list[Submission], job: str | None) -> list[Submission]:
    """The submissions that a job's id, its beginning or the cluster's own id names; all where none is given.

    Raises:
        GoalError: there are none.
    """
    exact = [one for one in known if job and job in (one.id, one.job)]
    named = exact or [one for one in known if job is None or (job and one.id.startswith(job))]
    if not known:
        raise GoalError(f"nothing was submitted for this sweep from the store {records.root}")
    if not named:
        raise GoalError(f"no job {job!r} of this sweep; known: {', '.join(one.id for one in known)}")
    return named


def job_lines(records: Submissions, known: list[Submission]) -> Iterator[str]:
    """A line on the newest job, and on each older one that lives; none where nothing was submitted."""
    from goal_sweep.runners.cluster.submission import standings

    for one, state in standings((one for one in known if one is known[-1] or not one.ended), records):
        if one is known[-1] or not state.is_over:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.submitted))
            status = f", exit status {state.status}" if state.status is not None else ""
            name = f"{one.id}: {one.to} job {one.job}".rstrip()
            yield f"{name}, submitted {since} on {one.host}: {state.said}{status}"


def jobs_as_json(records: Submissions, known: list[Submission]) -> str:
    """Every job of a sweep with its state."""
    from goal_sweep.runners.cluster.submission import standings

    return json.dumps(
        [
            {**asdict(one), "phase": state.phase, "state": state.said, "status": state.status}
            for one, state in standings(known, records)
        ],
        indent=2,
    )


def show_job_log(records: Submissions, known: list[Submission], job: str | None, *, follow: bool) -> None:
    """Print what a job has printed."""
    from goal_sweep.runners.cluster.submission import backend_of

    one = chosen(records, known, job)[-1]
    for line in backend_of(one.to).logs(one, records.files(one.id), follow=follow):
        print(printable(line), flush=True)
