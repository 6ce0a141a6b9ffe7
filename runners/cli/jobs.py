"""Batch jobs: the commands `submit` and `cancel`, and what `status` and `logs` show of jobs."""

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import DataError, GoalError, WeightsError, printable
from goal_sweep.runners.cli.options import Seeds, Set, StoreDir, Sweep, SweepArguments, Trust, Uri
from goal_sweep.runners.cli.output import console
from goal_sweep.runners.cluster import kubernetes
from goal_sweep.runners.cluster.backend import Submission, Submissions
from goal_sweep.runners.cluster.submission import BACKENDS, EXAMPLES, job_of, send, site_file, states
from goal_sweep.runners.launch.opened import open_sweep
from goal_sweep.runners.store import local_root
from goal_sweep.sweeps.reading.load import load_for_cluster, load_places

submitting = typer.Typer()
Kind = Literal["ray", "slurm", "kubernetes"]
Site = Annotated[
    Path | None, typer.Option("--site", help="Settings of the cluster; default: ~/.config/goal-sweep/site.yaml.")
]


@submitting.command()
def submit(
    sweep: Sweep = "",
    to: Annotated[Kind | None, typer.Option("--to", help="Kind of cluster.")] = None,
    site: Site = None,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    show: Annotated[bool, typer.Option("--print", help="Print exactly what would be sent; send nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also retry failed cells.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    trust_plugins: Trust = False,
    example: Annotated[Kind | None, typer.Option("--example", help="Print an example of a site file.")] = None,
) -> None:
    """Launch a sweep as a batch job, which goes on without this shell until the sweep is done.

    For Kubernetes it prints the RayJob that kubectl creates: --to kubernetes | kubectl create -f -

    Example: goal-sweep submit quickstart.yaml --to slurm --set cluster.slurm.time=4:00:00
    """
    if example is not None:
        print((EXAMPLES / f"{example}.yaml").read_text(), end="")
        return
    if not sweep or to is None:
        raise GoalError("give a sweep and --to ray, slurm or kubernetes (see goal-sweep submit --help)")
    arguments = SweepArguments(sweep, set_, store, tracking_uri, trust_plugins, seeds)
    loaded = load_for_cluster(sweep, arguments.overrides, site=site_file(site), kind=to, trusted=trust_plugins)
    draft = job_of(loaded, [*(["--retry-failed"] if retry_failed else []), *(["--fail-fast"] if fail_fast else [])])
    backend = kubernetes if to == "kubernetes" else BACKENDS[to]
    notes = backend.check(draft)
    if show:
        print(backend.render(draft), end="")
        return
    try:
        open_sweep(loaded.config).check_trainable()
    except (DataError, WeightsError) as error:  # the nodes check what they have in any case
        notes.append(f"not checked here: {error}")
    if to == "kubernetes":
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        print(backend.render(draft), end="")
        return
    again = replace(arguments, set_=[one for one in set_ or () if not one.startswith("cluster.")])
    sent, more = send(draft, to, Submissions(local_root(loaded.config.store)), again.command("cancel"))
    for note in [*notes, *more]:
        console.print(f"note: {note}")
    console.print(f"{sent.id}: submitted to {to} as job {sent.job}")
    for verb, words in (("status", ()), ("logs", ("--job", "--follow")), ("cancel", ())):
        console.print(f"  {again.command(verb, *words)}")


@submitting.command()
def cancel(
    sweep: Sweep,
    job: Annotated[str | None, typer.Argument(help="The job's id; default: the last one.")] = None,
    site: Site = None,
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """End a batch job of a sweep. Its running cells save first; submit continues from there.

    Example: goal-sweep cancel quickstart.yaml
    """
    records, known = submissions_of(sweep, set_, store, site)
    for one, state in states([_chosen(records, known, job)], records):
        if state.phase == "silent":
            raise GoalError(f"{one.id}: {state.said}")
        if state.phase not in ("pending", "running"):
            raise GoalError(f"{one.id} is over: {state.said}")
        BACKENDS[one.to].cancel(one)
        how = "is being cancelled; its running cells save" if state.phase == "running" else "leaves the queue"
        console.print(f"{one.id}: {one.to} job {one.job}".rstrip() + f" {how}")


def submissions_of(
    sweep: str, set_: list[str] | None, store: str | None, site: Path | None = None
) -> tuple[Submissions, list[Submission]]:
    """The store's submissions and those of a sweep, oldest first. Reads neither data nor weights."""
    places = load_places(sweep, SweepArguments(sweep, set_, store).overrides, site=site_file(site))
    records = Submissions(local_root(places.store))
    return records, records.of(places.name)


def _chosen(records: Submissions, known: list[Submission], job: str | None) -> Submission:
    """The newest submission that a job's id or the cluster's own id names; the newest of all by default."""
    if not known:
        raise GoalError(f"nothing was submitted for this sweep from the store {records.root}")
    if not (named := [one for one in known if job in (None, one.id, one.job)]):
        raise GoalError(f"no job {job!r} of this sweep; known: {', '.join(one.id for one in known)}")
    return named[-1]


def job_lines(records: Submissions, known: list[Submission]) -> Iterator[str]:
    """A line on the newest job; none where nothing was submitted."""
    for one, state in states(known[-1:], records):
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.submitted))
        status = f", exit status {state.status}" if state.status is not None else ""
        name = f"{one.id}: {one.to} job {one.job}".rstrip()
        yield f"{name}, submitted {since} on {one.host}: {state.said}{status}"


def jobs_as_json(records: Submissions, known: list[Submission]) -> str:
    """Every job of a sweep with its state."""
    found = states(known, records)
    rows = [asdict(one) | {"phase": own.phase, "state": own.said, "status": own.status} for one, own in found]
    return json.dumps(rows, indent=2)


def show_job_log(records: Submissions, known: list[Submission], job: str | None, *, follow: bool) -> None:
    """Print what a job has printed."""
    one = _chosen(records, known, job)
    for line in BACKENDS[one.to].logs(one, records.files(one.id), follow=follow):
        print(printable(line), flush=True)
