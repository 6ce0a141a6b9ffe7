"""The commands that read and carry results: `report`, `card`, `sync`, `export`, `import`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from goal_sweep.goal_core.basics.errors import GoalError, UnfinishedError
from goal_sweep.runners.cli.options import (
    AsJson,
    Scale,
    Set,
    StoreDir,
    Stores,
    Sweep,
    SweepArguments,
    Uri,
    console,
    local_path,
)

results = typer.Typer()
_SYNC_WAIT_S = 600.0
_END_WAIT_S = 10.0


@results.command()
def report(
    sweep: Sweep,
    set_: Set = None,
    store: Stores = None,
    tracking_uri: Uri = None,
    out: Annotated[Path | None, typer.Option(parser=local_path, help="Folder of the report.")] = None,
    compare: Annotated[Literal["published"] | None, typer.Option(help="Compare with the paper's numbers.")] = None,
    scale: Annotated[Scale, typer.Option(help="Colours of the tables.")] = "paper",
    as_json: AsJson = False,
) -> None:
    """Write the tables, heatmaps, learning curves and statistics, and attach them to the sweep's MLflow run.

    Several results folders are shown as one: --store A --store B.

    Example: goal-sweep report quickstart.yaml --out report
    """
    from goal_sweep.runners.cli import reports

    stores = store or list(filter(None, [os.environ.get("GOAL_SWEEP_STORE")]))
    target = reports.report_target(sweep, SweepArguments("", set_, None, tracking_uri).overrides, stores)
    result, why = reports.report(target, out, compare, scale)
    warned = reports.warnings(target, result)
    if as_json:
        print(json.dumps({**result.as_json(), "warnings": warned}, indent=2))
        return
    reports.print_result(result, console)
    for line in warned:
        print(f"warning: {line}", file=sys.stderr)
    if why:
        console.print(f"        not attached to MLflow: {why}")


@results.command()
def card(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    out: Annotated[Path | None, typer.Option(parser=local_path, help="Write it here, not to the terminal.")] = None,
) -> None:
    """Write the model card of the sweep's best model on val: data, objective, settings, mean and spread over seeds.

    Example: goal-sweep card quickstart.yaml --out README.md
    """
    from goal_sweep.analysis.report.sections.card import model_card
    from goal_sweep.runners.cli import reports

    target = reports.report_target(sweep, SweepArguments("", set_, store, tracking_uri).overrides)
    text = model_card(target.results())
    if out is None:
        print(text, end="")
    else:
        out.write_text(text)
        console.print(str(out))


@results.command()
def sync(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Also replace MLflow runs that show another store's results.")
    ] = False,
) -> None:
    """Rebuild a sweep's results table, its MLflow runs and the attached report from the store.

    Example: goal-sweep sync quickstart.yaml
    """
    from goal_sweep.runners.cli import reports
    from goal_sweep.runners.results import lost_results
    from goal_sweep.runners.tracking.sync import SweepTracking
    from goal_sweep.runners.tracking.uri import TrackingError, read_only

    opened = SweepArguments(sweep, set_, store, tracking_uri).open()
    target = reports.ReportTarget(config=opened.config)
    if why := read_only(target.uri):
        raise TrackingError(why)
    if lost := lost_results(opened.store, opened):
        raise GoalError(
            f"{lost} finished trainings of {opened.config.name} are not among those of these settings, and would leave "
            "the results table: give the file and the settings of the last launch, or launch these"
        )
    opened.store.prepare()
    with SweepTracking(opened, opened.store, live=False, thorough=True, take_over=take_over) as tracking:
        tracking.sync_all(wait=_SYNC_WAIT_S)
        tracking.require_own()
        if tracking.trouble:
            raise UnfinishedError(tracking.trouble)
    attached = reports.restore(target)
    console.print(f"tracking is up to date{', and has the report' if attached else ''}")


@results.command()
def gc(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove what is listed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what a sweep's results keep although nobody needs it, with sizes; remove it with --delete.

    That is: the states of finished trainings, what was set aside as damaged or by --force, what interrupted writes
    left, and cached features if every training in the store is finished. Weights and results stay, and so does
    everything that a launch would continue from. While a launch works on the store, nothing is removed.

    Example: goal-sweep gc quickstart.yaml
    """
    from rich.filesize import decimal

    from goal_sweep.runners.store.garbage import find_garbage, remove_garbage

    arguments = SweepArguments(sweep, set_, store)
    opened = arguments.open()
    if delete:
        found = remove_garbage(opened.store, opened.config.name, opened.trainings)
    else:
        found = find_garbage(opened.store, opened.trainings)
    if as_json:
        rows = [
            {"kind": one.kind, "what": one.what, "bytes": one.bytes, "files": list(map(one.storage.shown, one.files))}
            for one in found
        ]
        print(json.dumps({"removed": delete, "garbage": rows}, indent=2))
        return
    for one in found:
        console.print(f"{decimal(one.bytes):>10}  {len(one.files):4d} files  {one.kind}: {one.what}")
    total = f"{decimal(sum(one.bytes for one in found))} in {sum(len(one.files) for one in found)} files"
    if delete or not found:
        console.print(f"{total} removed" if found else "nothing to remove")
    else:
        console.print(f"{total} can be removed: {arguments.command('gc', '--delete')}")


@results.command("export")
def export_(
    sweep: Sweep,
    file: Annotated[Path, typer.Argument(help="The archive to write.")],
    set_: Set = None,
    store: StoreDir = None,
) -> None:
    """Write a sweep's finished results, without weights, to one file.

    Names of hosts, paths, logs and uncommitted changes stay here.

    Example: goal-sweep export quickstart.yaml quickstart.tar.gz
    """
    from goal_sweep.runners.store.archive import export_results

    opened = SweepArguments(sweep, set_, store).open()
    done, asked = export_results(opened, opened.store, file)
    left = f"; the other {asked - done} are not finished" if done < asked else ""
    console.print(f"{file}: {done} of {asked} results{left}")


@results.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="An archive that `export` wrote.")],
    store: Annotated[str, typer.Option("--store", help="Results folder to add to.")] = "./goal-sweep-store",
    tracking_uri: Uri = None,
) -> None:
    """Add the results of an archive to a results folder and to MLflow, without the data or the weights.

    Nothing is added unless the archive and the results folder are right.

    Example: goal-sweep import quickstart.tar.gz --store results
    """
    from goal_sweep.runners.store import Store
    from goal_sweep.runners.store.archive import add_results, opened_archive, plan_import
    from goal_sweep.runners.tracking.sync import SweepTracking
    from goal_sweep.runners.tracking.uri import resolve_uri

    target = Store(store)
    uri = resolve_uri(tracking_uri or "sqlite:///{store}/mlflow.db", target.root)
    with opened_archive(file) as archive:
        outcome = plan_import(archive, target)
        tracked = replace(archive, config=replace(archive.config, tracking=uri))
        with SweepTracking(tracked, target, live=False, warn=lambda line: None, closing_s=_END_WAIT_S) as tracking:
            path = add_results(archive, outcome, target, uri)
            added, known = len(outcome.added), len(outcome.known)
            console.print(f"{archive.config.name}: {added} results added, {known} were there already")
            if outcome.begun:
                left = f"begun in {target.location} and not finished; a launch continues them"
                console.print(f"  {len(outcome.begun)} not imported: {left}")
            tracking.sync_all(wait=_SYNC_WAIT_S, patient=False)
            if tracking.trouble:
                raise UnfinishedError(f"the results are imported, but {tracking.trouble}")
    console.print(f"report: {SweepArguments(str(path)).command('report')}")
