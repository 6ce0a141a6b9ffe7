"""The commands that send batch jobs and end them: `submit` and `cancel`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from goal_core.basics.errors import DataError, GoalError, WeightsError
from runners.cli.jobs import Site, chosen, job_name, submissions_of
from runners.cli.options import Set, StoreDir, Sweep, SweepArguments, Uri, console

if TYPE_CHECKING:
    from runners.cluster.standing import Standing
    from runners.store.submissions import Submissions
    from sweeps import ClusterSweep

submitting = typer.Typer()
Kind = Literal["ray", "slurm", "kubernetes"]


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
    if example is not None:
        from runners.cluster.submission import example_site

        print(example_site(example), end="")
        return
    if not sweep or to is None:
        raise GoalError("give a sweep and --to ray, slurm or kubernetes (see goal-sweep submit --help)")
    if array is not None and to != "slurm":
        raise GoalError("--array is a form of Slurm jobs; on Ray and Kubernetes the workers share the sweep")
    options = [*(["--retry-failed"] if retry_failed else []), *(["--fail-fast"] if fail_fast else [])]
    arguments = SweepArguments(sweep, set_, store, tracking_uri)
    overrides = [*arguments.overrides, *([] if array is None else [f"cluster.slurm.array={array}"])]
    _submit(arguments, overrides, to, site, options, show=show)


def _submit(
    arguments: SweepArguments, overrides: list[str], to: Kind, site: Path | None, options: list[str], *, show: bool
) -> None:
    """Check a job, and print or send it."""
    from runners.cluster import submission as jobs
    from runners.cluster.standing import send
    from runners.execution.inputs import code_digest
    from runners.store import local_root
    from runners.store.submissions import Submissions

    loaded = jobs.load(arguments.sweep, overrides, jobs.site_file(site), to)
    backend, code = jobs.backend_of(to), code_digest()
    records = Submissions(local_root(loaded.config.store))
    draft = jobs.job_of(loaded, records.next_id(loaded.config.name), code, options)
    backend.check(draft)
    if show:
        print(backend.render(draft), end="")
        return
    _check_here(loaded)
    for note in backend.notes(draft):
        _note(note)
    again = SweepArguments(arguments.sweep, _without_cluster(arguments.set_), arguments.store)
    make = partial(jobs.job_of, loaded, code=code, options=options)
    sent = send(draft, make, backend, to, records, again.command("cancel"), _note)
    console.print(f"{sent.id}: submitted to {to} as job {sent.job}", soft_wrap=True)
    anywhere = _from_anywhere(again, loaded.config.store)
    for verb, words in (("status", ()), ("logs", ("--job", "--follow")), ("cancel", ())):
        console.print(f"  {anywhere.command(verb, *words)}", soft_wrap=True)


def _note(text: str) -> None:
    console.print(f"note: {text}", soft_wrap=True)


def _without_cluster(set_: list[str] | None) -> list[str]:
    return [one for one in set_ or () if not one.startswith("cluster.")]


def _from_anywhere(again: SweepArguments, store: str) -> SweepArguments:
    """The same sweep and store, named so that a command works in any folder."""
    from runners.store import local_root

    path = Path(again.sweep).expanduser()
    sweep = str(path.absolute()) if path.is_file() else again.sweep
    place = store if "://" in store else str(local_root(store))
    return SweepArguments(sweep, [one for one in again.set_ or () if not one.startswith("store=")], place)


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
    forget: Annotated[
        bool, typer.Option("--forget", help="Take a job for ended whose cluster cannot be asked any more.")
    ] = False,
    site: Site = None,
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """End a batch job of a sweep. Its running cells save first; submit continues from there.

    Example: goal-sweep cancel quickstart.yaml
    """
    from runners.cluster.standing import standing

    records, found = submissions_of(sweep, set_, store, site)
    known = [standing(one, records) for one in chosen(records, found, job) if job is not None or not one.ended]
    _note_ends(known, records)
    command = SweepArguments(sweep, set_, store).command("cancel")
    done = [_forget(one, records) if forget else _cancel(one, records) for one in known]
    if lost := [one for one in known if one.error and one.may_live and not forget]:
        one = lost[0]
        raise GoalError(f"{one.submission.id}: {one.error}; if it is gone: {command} {one.submission.id} --forget")
    if not any(done):
        if job is not None and len(known) == 1:
            raise GoalError(f"{known[0].submission.id} is over: {known[0].state.said}")
        raise GoalError(f"no job of {sweep} is in a queue or running")


def _note_ends(known: list[Standing], records: Submissions) -> None:
    """Record how jobs ended, so that their clusters are not asked again. A damaged record waits for `--forget`."""
    for one in known:
        if one.state.phase == "ended" and not one.submission.ended and not one.submission.damaged:
            records.ended(one.submission, one.state.said, one.state.status)


def _cancel(known: Standing, records: Submissions) -> bool:
    """End a job. Returns whether there was something to end."""
    from runners.cluster.submission import backend_of

    one = known.submission
    if known.error or known.state.is_over:
        return False
    backend_of(one.to).cancel(one, records.files(one.id))
    records.cancelled(one)
    how = "is being cancelled; its running cells save" if known.state.phase == "running" else "leaves the queue"
    console.print(f"{one.id}: {job_name(one)} {how}", soft_wrap=True)
    return True


def _forget(known: Standing, records: Submissions) -> bool:
    """Take a job for ended that nobody can ask for. Returns whether there was one.

    Raises:
        GoalError: it lives.
    """
    one = known.submission
    if not known.error and not known.state.is_over:
        raise GoalError(f"{one.id}: {known.state.said}; without --forget, cancel ends it")
    if one.ended or (known.state.phase == "ended" and not one.damaged):
        return False
    records.ended(one, "forgotten" if known.state.phase == "unknown" else known.state.said, known.state.status)
    console.print(f"{one.id}: forgotten; {known.state.said}", soft_wrap=True)
    return True
