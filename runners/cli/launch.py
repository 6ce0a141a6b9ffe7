"""The commands that run and watch a sweep: `launch`, `validate`, `status`, `logs`."""

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Literal

import typer

from goal_sweep.goal_core.basics.atomic import StorageError, replace_bytes
from goal_sweep.goal_core.basics.errors import ConfigError, DeviceError, GoalError, printable
from goal_sweep.goal_core.evaluation.metrics import RSUM, TEST
from goal_sweep.runners.cli.jobs import Site, job_lines, jobs_as_json, show_job_log, submissions_of
from goal_sweep.runners.cli.options import AsJson, Seeds, Set, StoreDir, Sweep, SweepArguments, Trust, Uri
from goal_sweep.runners.cli.output import console
from goal_sweep.runners.cli.plan import plan_of, plan_text
from goal_sweep.runners.cluster.backend import Submissions
from goal_sweep.runners.execution.job import check_code
from goal_sweep.runners.execution.session import Resources, check_address, check_here
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.runners.launch.remaining import LaunchOptions
from goal_sweep.runners.launch.signals import StopSignals
from goal_sweep.runners.launch.view import METRICS, overview
from goal_sweep.runners.store import Store, TrainingFolder, TrainingStatus, status_of
from goal_sweep.sweeps import SweepConfig, SweepPlaces
from goal_sweep.sweeps.cells import describe_size
from goal_sweep.sweeps.reading.load import load_places

launching = typer.Typer()
_POLL_SECONDS = 0.5
_SUBMITTED_CODE = "GOAL_SWEEP_CODE"
"""Variable of a batch job: the digest of the code that submitted it."""


@launching.command()
def launch(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    address: Annotated[
        str | None,
        typer.Option(
            envvar="GOAL_SWEEP_ADDRESS",
            help="Ray cluster to train on, as host:port of its head, or auto; default: this machine.",
        ),
    ] = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan; train nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also retry failed cells.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Retry failed cells and nothing else.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
    trust_plugins: Trust = False,
) -> None:
    """Train what a sweep lacks, then write its report. Several launches of a sweep at once share the work.

    Example: goal-sweep launch quickstart.yaml --set seeds=[1,2]
    """
    if only_failed and retry_failed:
        raise GoalError("give --only-failed or --retry-failed")
    arguments = SweepArguments(sweep, set_, store, tracking_uri, trust_plugins, seeds)
    if dry_run:
        check_address(address or "auto")
        opened = arguments.open(renew=True)
        with arguments.placed():
            opened.check_trainable()
        console.print(plan_text(opened, plan_of(opened), console.width))
        return
    with StopSignals() as signals:
        try:
            failed: Literal["keep", "retry", "only"] = "retry" if retry_failed else "only" if only_failed else "keep"
            status = _launch(arguments, signals, address=address, failed=failed, fail_fast=fail_fast)
        except (KeyboardInterrupt, SystemExit, Exception) as error:
            # A library may turn the interruption of its work into an error of its own, and Ray SIGTERM into an exit.
            if signals.received is None and isinstance(error, Exception):
                raise
            console.print(f"{signals.cause}: the same command continues")
            status = signals.status
    raise typer.Exit(status)


def _launch(arguments: SweepArguments, signals: StopSignals, **options: Any) -> int:
    with signals.loading():
        from goal_sweep.runners.launch.launch import launch_sweep

        check_code(os.environ.get(_SUBMITTED_CODE), "submitted")
        opened = arguments.open(renew=True)
    with arguments.placed():
        outcome = launch_sweep(opened, LaunchOptions(**options), console, arguments.command, signals)
    if signals.received is not None:
        return outcome.status
    from goal_sweep.runners.cli import reports

    target, digest = reports.ReportTarget(config=opened.config, asked=True), outcome.progress.digest()
    if outcome.found_nothing_to_do and target.shows(digest):
        console.print(f"nothing to train; report: {target.folder / 'report.html'}")
        return outcome.status
    again = arguments.command("report", with_tracking=True)
    try:
        result, why = reports.report(target, attach=outcome.is_tracked)
        reports.print_result(result, console, reports.settling(target, result, arguments))
    except (GoalError, OSError) as error:
        # The exit status tells how training ended. The report may have failed for the same reason (a full disk).
        print(f"error: no report: {error}; afterwards: {again}", file=sys.stderr)
        return outcome.status
    if why:
        print(f"the report is not in MLflow: {why}; afterwards: {again}", file=sys.stderr)
        return outcome.status
    with suppress(StorageError):  # without the mark, the next launch writes the report again
        replace_bytes(target.mark, digest.encode())
    console.print(f"MLflow UI: {arguments.command('ui', with_tracking=True)}")
    return outcome.status


@launching.command()
def validate(sweep: Sweep, set_: Set = None, seeds: Seeds = None, trust_plugins: Trust = False) -> None:
    """Check a sweep file, its data and its weights without training.

    Example: goal-sweep validate my_sweep.yaml
    """
    for line in validated(SweepArguments(sweep, set_, trusted=trust_plugins, seeds=seeds)):
        console.print(line)


def validated(arguments: SweepArguments) -> Iterator[str]:
    """Check a sweep as `launch` does before it trains, and say what was found."""
    opened = arguments.open(renew=True)
    with arguments.placed():
        if unlike := opened.unlike_published():
            raise ConfigError(unlike, key="data.name")
        opened.check_trainable()
    splits = (f"{s.name} {s.num_images} images {s.num_captions} captions" for s in opened.dataset.splits.values())
    yield f"{opened.config.name}: valid. {opened.dataset.name}: {', '.join(splits)}"
    yield from (f"data: {line}" for line in opened.notes)
    yield describe_size(opened)
    if opened.studies:
        yield opened.progress().phase
    try:
        check_here(Resources.of(opened.config.resources))
    except DeviceError as error:
        yield f"note: {error}"


@launching.command()
def status(
    sweep: Sweep,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    as_json: AsJson = False,
    jobs: Annotated[bool, typer.Option("--jobs", help="Only the batch jobs; needs no data.")] = False,
    site: Site = None,
) -> None:
    """Show the 5x3 grid of each block, with plugins what the last launch has, and batch jobs. Changes no result.

    Example: goal-sweep status quickstart.yaml
    """
    if jobs:
        records, found = submissions_of(sweep, set_, store, site)
        shown = jobs_as_json(records, found) if as_json else "\n".join(job_lines(records, found))
        print(shown or f"nothing was submitted from the store {records.root}")
        return
    from goal_sweep.runners.results import changed_settings, read_results

    arguments = SweepArguments(sweep, set_, store, seeds=seeds)
    if as_json:
        print(json.dumps(status_rows(arguments), indent=2))
        return
    if not isinstance(places := load_places(sweep, arguments.overrides), SweepConfig):
        _show_recorded(places)
        return
    opened = arguments.open()
    progress = opened.progress()
    console.print(overview(progress, opened.config.name, width=console.width))
    table = read_results(opened.store, opened.config.name)
    if table is not None and (changed := changed_settings(table.header.requested, opened.requested)):
        console.print(f"the last launch, which the report shows, had other settings (then -> here): {changed}")
    for holder in dict.fromkeys(progress[one].holder for one in opened.trainings if progress[one].holder):
        console.print(f"training: {holder}")
    records = Submissions(opened.store.root)
    for line in job_lines(records, records.of(opened.config.name)):
        console.print(line)


def status_rows(arguments: SweepArguments) -> list[dict[str, Any]]:
    """What `status --json` says: of each training its state, epochs, val rsum and test results."""
    if not isinstance(places := load_places(arguments.sweep, arguments.overrides), SweepConfig):
        return [_row(*one) for one in _recorded(places)]
    progress = arguments.open().progress()
    return [_row(one.cell.id, one.name, one.stage.name, progress[one], one.stage.epochs) for one in progress.trainings]


def _row(cell: str, name: str, stage: str, status: TrainingStatus, epochs: int | None = None) -> dict[str, Any]:
    return {
        **{"cell": cell, "name": name, "stage": stage, "state": status.state, "reason": status.reason},
        **{"epoch": status.epochs or status.result.get("epochs", 0), "epochs": epochs or status.result.get("epochs")},
        "val_rsum": status.metrics.get(RSUM.val) if math.isnan(status.best_rsum) else status.best_rsum,
        "test": {metric: value for metric, value in status.metrics.items() if metric.startswith(TEST)},
    }


def _recorded(places: SweepPlaces) -> list[tuple[str, str, str, TrainingStatus]]:
    """Cell, name, stage and status now of what the last launch of a sweep with plugins recorded. No plugin runs."""
    from goal_sweep.runners.results import read_results

    store = Store(places.store)
    if (table := read_results(store, places.name)) is None:
        raise GoalError(f"no launch of {places.name} in the store {store.location}, so nothing is known of its plugins")
    allowed = int(table.header.requested.config["resources"]["max_attempts"])
    rows = list(table.rows(("training", "cell", "name", "stage")))
    states = [status_of(store.folder_of(row["cell"], row["stage"], row["training"]), allowed) for row in rows]
    return [(row["cell"], row["name"], row["stage"], one) for row, one in zip(rows, states, strict=True)]


def _show_recorded(places: SweepPlaces) -> None:
    rows = _recorded(places)
    for _, name, _, one in rows:
        tested = ", ".join(f"{what} {one.metrics[key]:.1f}" for key, what in METRICS.items() if key in one.metrics)
        console.print(f"{one.state:8} {name}  {one.reason or tested}".rstrip())
    done = sum(one.state == "done" for *_, one in rows)
    unseen = "settings that changed since are not seen, as no plugin was run"
    console.print(f"{places.name}: {done} of {len(rows)} done; {unseen}")


@launching.command()
def logs(
    sweep: Sweep,
    cell: Annotated[str | None, typer.Argument(help="The cell's id or its beginning, or a part of its name.")] = None,
    set_: Set = None,
    seeds: Seeds = None,
    store: StoreDir = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed last, with reason and trace.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
    job: Annotated[bool, typer.Option("--job", help="What the batch job printed; CELL is then the job's id.")] = False,
    site: Site = None,
) -> None:
    """Print the logs of a sweep's cells, or of its batch job.

    Example: goal-sweep logs quickstart.yaml sig-ms/cir --follow
    """
    if job:
        if failed:
            raise GoalError("give --job without --failed, which is about cells")
        show_job_log(*submissions_of(sweep, set_, store, site), cell, follow=follow)
        return
    for line in log_lines(
        SweepArguments(sweep, set_, store, seeds=seeds).open(), cell or "", failed=failed, follow=follow
    ):
        print(printable(line))


def log_lines(sweep: OpenedSweep, pattern: str, *, failed: bool, follow: bool) -> Iterator[str]:
    """The logs of a sweep, stage by stage and cell by cell. Raises `GoalError` where no cell matches the pattern.

    Args:
        pattern: beginning of a cell id or of a stage key, or part of a cell's name; empty for all cells.
        failed: only trainings whose last attempt failed, each with that attempt's reason and trace.
    """
    folders = {
        sweep.store.folder(one): one
        for one in sweep.trainings
        if one.cell.id.startswith(pattern)
        or one.key.startswith(pattern)
        or pattern in f"{one.cell.label} {one.configuration}"
    }
    if not folders:
        raise GoalError(f"no cell of {sweep.config.name} has {pattern!r} in its id or name")
    sizes = {folder: folder.logs() for folder in folders}
    is_silent = True
    for folder, training in folders.items():
        if lines := list(_log_of(folder, failed=failed)):
            yield from [f"== {training.name}  {training.cell.id}", *lines]
            is_silent = False
    if is_silent and not follow:
        yield "no failed cell" if failed else "nothing has been logged yet"
    while follow:
        time.sleep(_POLL_SECONDS)
        for folder, training in folders.items():
            for path, size in folder.logs().items():
                before = sizes[folder].get(path, 0)
                if size > before:
                    added = (folder.storage.read(path) or b"")[before:]
                    sizes[folder][path] = before + len(added)
                    yield from (f"{training.name} | {line}" for line in added.decode(errors="replace").splitlines())


def _log_of(folder: TrainingFolder, *, failed: bool) -> Iterator[str]:
    """The log of a training, then how its last attempt failed. With ``failed``, nothing if it did not fail."""
    newest = folder.attempts.newest()
    last_failed = newest is not None and newest.outcome == "failed"
    if failed and not last_failed:
        return
    log = folder.log_text().rstrip()
    yield from [log] if log else []
    if newest is not None and last_failed and (failed or not log):
        yield f"attempt {newest.n} failed: {newest.reason}"
        yield from filter(None, [newest.trace.rstrip()])
