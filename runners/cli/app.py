"""`goal-sweep`: parse, call, print, exit. The only module that knows all four packages.

Exit status: 0 done, 1 some cells failed, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from goal_core.errors import GoalError
from runners.cli.convert import convert
from runners.cli.data import data_app
from runners.cli.evaluate import evaluate
from runners.cli.options import AsJson, Set, StoreDir, Sweep, Uri, console, open_sweep, overrides
from runners.cli.results import results

app = typer.Typer(
    help="Train image-text retrieval models with every GOAL objective, and get the tables a paper prints.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.add_typer(results)
_USAGE = 2
app.add_typer(data_app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"goal-sweep {version('goal-sweep')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def launch(
    sweep: Sweep,
    set_: Set = None,
    address: Annotated[str | None, typer.Option(help="A Ray cluster; without it, this machine.")] = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan; train nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also try failed cells again.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Try failed cells again, nothing else.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
) -> None:
    """Train what is missing of a sweep, then write its report.

    Example: goal-sweep launch quickstart.yaml --set seeds=[1,2]
    """
    from runners.execution.ray_tune import RayLostError
    from runners.execution.relaunch import relaunch
    from runners.launch.launcher import INTERRUPTED, Launcher, LaunchOptions

    study = open_sweep(sweep, set_, store, tracking_uri)
    if dry_run:
        study.check_trainable()
        _print_plan(study)
        return
    options = LaunchOptions(address=address, retry_failed=retry_failed, only_failed=only_failed, fail_fast=fail_fast)
    launcher = Launcher(study, options, console)
    try:
        status = launcher.run()
    except RayLostError as error:
        if address is not None:
            raise
        console.print("Ray died on this machine; starting again from the last finished epochs", soft_wrap=True)
        relaunch(error)
    if status != INTERRUPTED:
        _report_launch(study, launcher, sweep, failed=status != 0)
    raise typer.Exit(status)


def _report_launch(study: Any, launcher: Any, sweep: str, *, failed: bool) -> None:
    from runners.cli import reporting

    place, outcome = reporting.ReportPlace.of(study.config), launcher.board.digest()
    if launcher.nothing_to_do and reporting.is_of(place, outcome):
        console.print(f"nothing to train; report: {place.folder / 'report.html'}", soft_wrap=True)
        return
    try:
        reporting.print_result(reporting.report([place], None, None, "paper"), console)
        reporting.mark(place, outcome)
    except GoalError as error:
        if not failed:
            raise
        # The exit status is that of the failed cells, whose reason may well be the report's too (a full disk).
        print(f"error: no report: {error}", file=sys.stderr)
        return
    console.print(f"MLflow UI: goal-sweep ui {sweep}", soft_wrap=True)


@app.command()
def plan(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Train a few steps here to estimate the time of stages never run before."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show cells, units, steps, disk and time of each stage, before anything runs.

    Where COCO or Flickr30K are not there, their published sizes stand for them.

    Example: goal-sweep plan emoji_vsepp.yaml --measure
    """
    from runners.launch.estimate import absent_but_published, plan_published
    from sweeps import load_sweep

    config = load_sweep(sweep, overrides(set_, store, None))
    train = absent_but_published(config)
    if train is not None and not measure:
        data = f"not here: planned from its published size, {train} to train on"
        _print_stages(config, plan_published(config, train), data, as_json=as_json)
        return
    study = open_sweep(sweep, set_, store, None)
    if measure:
        study.check_trainable()
    _print_plan(study, as_json=as_json, measure=measure)


def _print_plan(study: Any, *, as_json: bool = False, measure: bool = False) -> None:
    from runners.launch.estimate import plan_stages

    _print_stages(study.config, plan_stages(study, measure=measure), study.dataset.fingerprint, as_json=as_json)


def _print_stages(config: Any, stages: list[Any], data: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(stage) for stage in stages], indent=2))
        return
    console.print(
        f"{config.name}: {stages[0].cells} cells = {len(config.model.backbones)} backbones x "
        f"{len(config.seeds)} seeds x {len(config.objectives.names)} objectives; data {data}",
        soft_wrap=True,
    )
    table = Table(box=None)
    for column in ("stage", "cells", "done", "units", "steps/epoch", "steps", "disk MB", "device hours"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in stages:
        disk = "--" if stage.disk_mb is None else f"{stage.disk_mb:.0f}"
        hours = "--" if stage.hours is None else f"{stage.hours:.2f}"
        counts = [f"{count:,}" for count in (stage.cells, stage.done, stage.units, stage.steps_per_epoch, stage.steps)]
        table.add_row(stage.name, *counts, disk, hours)
    console.print(table)
    if any(stage.hours is None and stage.done < stage.cells for stage in stages):
        console.print("-- not known until a cell of the stage has finished; --measure tries a few steps")


@app.command()
def validate(sweep: Sweep, set_: Set = None) -> None:
    """Check a sweep file, its data and its weights, without running.

    Example: goal-sweep validate my_sweep.yaml
    """
    study = open_sweep(sweep, set_, None, None)
    study.check_trainable()
    splits = ", ".join(
        f"{s.name} {s.num_images} images {s.num_captions} captions" for s in study.dataset.splits.values()
    )
    console.print(
        f"{study.config.name}: valid. {len(study.cells)} cells. {study.dataset.name}: {splits}", soft_wrap=True
    )


@app.command()
def status(sweep: Sweep, set_: Set = None, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Show the 5x3 grid of each block as it stands. Changes nothing.

    Example: goal-sweep status quickstart.yaml
    """
    from runners.launch.live import overview, plus_minus

    study = open_sweep(sweep, set_, store, None)
    board = study.board()
    if as_json:
        rows = [
            {
                "cell": entry.cell.id,
                "name": entry.name,
                "stage": entry.stage_name,
                "state": entry.state,
                "epoch": entry.epoch,
                "epochs": entry.epochs,
                "reason": entry.reason,
                "test": dict(entry.test),
            }
            for entry in board.entries.values()
        ]
        print(json.dumps(rows, indent=2))
        return
    console.print(overview(board, study.config.name, live=False, sign=plus_minus(console)))


@app.command()
def logs(
    sweep: Sweep,
    cell: Annotated[str | None, typer.Argument(help="Cell id (or its beginning), or part of its name.")] = None,
    set_: Set = None,
    store: StoreDir = None,
    failed: Annotated[bool, typer.Option("--failed", help="Failed cells only, with their traces.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on printing as lines are added.")] = False,
) -> None:
    """Print the logs of a sweep's cells.

    Example: goal-sweep logs quickstart.yaml sig-ms/cir --follow
    """
    from runners.cli.logs import show_logs

    show_logs(open_sweep(sweep, set_, store, None), cell, failed=failed, follow=follow, write=print)


@app.command()
def objectives(
    plot: Annotated[Path | None, typer.Option(help="Draw the weights and gradient fields into this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the 15 objectives, their names in the literature, and which are the gradient of a loss.

    Example: goal-sweep objectives --plot figures
    """
    from runners.cli.objectives import objectives_table, plot_objectives

    if plot is not None:
        from types import SimpleNamespace

        from analysis.figures import objectives as figures

        drawing = SimpleNamespace(
            triplet_weights=figures.draw_triplet_weights,
            pair_weights=figures.draw_pair_weights,
            gradient_fields=figures.draw_gradient_fields,
        )
        for path in plot_objectives(plot, drawing):
            console.print(str(path), soft_wrap=True)
        return
    rows, table = objectives_table()
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        console.print(table)


app.command()(evaluate)
app.command()(convert)


@app.command()
def ui(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 5000,
) -> None:
    """Open MLflow's web page on the sweep's tracking store (Ctrl-C ends it).

    Example: goal-sweep ui quickstart.yaml --port 5001
    """
    from runners.cli.reporting import places_of

    (place,) = places_of([sweep], overrides(set_, store, tracking_uri))
    uri = place.uri
    console.print(f"http://127.0.0.1:{port}  ({uri})", soft_wrap=True)
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    os.execv(sys.executable, [*command, "--host", "127.0.0.1", "--port", str(port)])


def run(arguments: list[str] | None = None) -> int:
    """Run a command line and return its exit status; errors of the user are one message on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    if debug:
        given.remove("--debug")
    return _guarded(lambda: app(given, standalone_mode=False, prog_name="goal-sweep"), debug=debug)


_UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""Raised for a command line that cannot be read: click's, or that of the copy of click which newer typers hold."""


def _guarded(act: Callable[[], Any], *, debug: bool) -> int:
    try:
        returned = act()
    except GoalError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return _USAGE
    except typer.Exit as leave:
        return int(leave.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except _UsageError as error:
        said = error.format_message()
        if said:  # without its arguments a command has printed its help already
            asked = f" (see {error.ctx.command_path} --help)" if getattr(error, "ctx", None) else ""
            print(f"error: {said.rstrip('.')}{asked}", file=sys.stderr)
        return _USAGE
    return int(returned) if isinstance(returned, int) else 0


def main() -> None:
    """Entry point of the `goal-sweep` script."""
    sys.exit(run())
