"""The commands that run and watch a sweep: `launch`, `plan`, `validate`, `status`, `logs`."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.table import Table

from goal_core.errors import GoalError
from runners.cli.options import AsJson, Set, StoreDir, Sweep, SweepArguments, Uri, console

if TYPE_CHECKING:
    from runners.launch.estimate import Basis, StagePlan
    from runners.launch.launcher import LaunchOutcome
    from runners.launch.opened_sweep import OpenedSweep
    from runners.launch.stopping import StopSignals
    from runners.store import TrainingFolder
    from sweeps import Cell, SweepConfig

launching = typer.Typer()
_POLL_SECONDS = 0.5


@launching.command()
def launch(
    sweep: Sweep,
    set_: Set = None,
    address: Annotated[
        str | None, typer.Option(envvar="GOAL_SWEEP_ADDRESS", help="Address of a Ray cluster; default: this machine.")
    ] = None,
    store: StoreDir = None,
    tracking_uri: Uri = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and plan; train nothing.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also retry failed cells.")] = False,
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Retry failed cells and nothing else.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Repeat finished cells; old results are kept.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Stop at the first failed cell.")] = False,
) -> None:
    """Train what a sweep lacks, then write its report.

    Example: goal-sweep launch quickstart.yaml --set seeds=[1,2]
    """
    from runners.launch.stopping import StopSignals

    if only_failed and (retry_failed or force):
        raise GoalError("give --only-failed without --retry-failed and --force, which train more than the failed cells")
    arguments = SweepArguments(sweep, set_, store, tracking_uri)
    if dry_run:
        opened = arguments.open()
        opened.check_trainable()
        _print_plan(opened)
        return
    failed: Literal["keep", "retry", "only"] = "retry" if retry_failed else "only" if only_failed else "keep"
    with StopSignals() as signals:
        try:
            status = _launch(arguments, address, failed, signals, force=force, fail_fast=fail_fast)
        except (KeyboardInterrupt, Exception) as error:
            # A library may turn the interruption of its work into an error of its own.
            if signals.received is None and not isinstance(error, KeyboardInterrupt):
                raise
            console.print(signals.said, soft_wrap=True)
            status = signals.status
    raise typer.Exit(status)


def _launch(
    arguments: SweepArguments,
    address: str | None,
    failed: Literal["keep", "retry", "only"],
    signals: StopSignals,
    *,
    force: bool,
    fail_fast: bool,
) -> int:
    """Launch a sweep and write its report. Returns the exit status."""
    with signals.loading():
        from runners.execution.ray_session import RayLostError, restart_command
        from runners.launch.launcher import launch_sweep
        from runners.launch.plan import LaunchOptions

        opened = arguments.open()
    options = LaunchOptions(address=address, failed=failed, force=force, fail_fast=fail_fast)
    try:
        outcome = launch_sweep(opened, options, console, arguments.command, signals)
    except RayLostError as error:
        if address is not None:
            raise
        restart_command(error)
    if not outcome.stopped:
        _report(opened, outcome, arguments)
    return outcome.status


def _report(sweep: OpenedSweep, outcome: LaunchOutcome, arguments: SweepArguments) -> None:
    from runners.cli import reports

    target, digest = reports.ReportTarget.of(sweep.config), outcome.progress.digest()
    again = arguments.command("report", with_tracking=True)
    if outcome.found_nothing_to_do and reports.is_current(target, digest):
        console.print(f"nothing to train; report: {target.folder / 'report.html'}", soft_wrap=True)
        return
    if not outcome.is_tracked:
        print(f"no report, because tracking is not up to date; afterwards: {again}", file=sys.stderr)
        return
    try:
        reports.print_result(reports.report([target], None, None, "paper"), console)
        reports.mark_current(target, digest)
    except (GoalError, OSError) as error:
        # The exit status tells how training ended. The report may have failed for the same reason (a full disk).
        print(f"error: no report: {error}; afterwards: {again}", file=sys.stderr)
        return
    console.print(f"MLflow UI: {arguments.command('ui', with_tracking=True)}", soft_wrap=True)


@launching.command()
def plan(
    sweep: Sweep,
    set_: Set = None,
    store: StoreDir = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Train a few steps to estimate the time of stages that have never run."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the cells, units, steps, disk space and time of each stage before anything runs.

    If COCO or Flickr30K is not on this machine, its published size is used.

    Example: goal-sweep plan emoji_vsepp.yaml --measure
    """
    from runners.launch.estimate import absent_but_published, plan_published
    from sweeps import load_sweep

    arguments = SweepArguments(sweep, set_, store)
    config = load_sweep(sweep, arguments.overrides)
    splits = absent_but_published(config)
    if splits is not None and not measure:
        data = f"not on this machine; planned from its published size, {splits['train']} to train on"
        _print_stages(config, plan_published(config, splits), data, as_json=as_json)
        return
    opened = arguments.open()
    if measure:
        opened.check_trainable()
    _print_plan(opened, as_json=as_json, measure=measure)


def _print_plan(sweep: OpenedSweep, *, as_json: bool = False, measure: bool = False) -> None:
    from runners.launch.estimate import plan_stages

    _print_stages(sweep.config, plan_stages(sweep, measure=measure), sweep.data_fingerprint, as_json=as_json)


def _print_stages(config: SweepConfig, stages: list[StagePlan], data: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(stage) for stage in stages], indent=2))
        return
    console.print(
        f"{config.name}: {stages[0].cells} cells = {_count(len(config.model.backbones), 'backbone')} x "
        f"{_count(len(config.seeds), 'seed')} x {_count(len(config.objectives.names), 'objective')}; data {data}",
        soft_wrap=True,
    )
    table = Table(box=None)
    for column in ("stage", "cells", "done", "units", "steps/epoch", "steps", "disk MB", "device hours"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for stage in stages:
        disk = _estimate(stage.disk_mb, stage.disk_from, 0)
        hours = _estimate(stage.hours, stage.hours_from, 2)
        counts = [f"{count:,}" for count in (stage.cells, stage.done, stage.units, stage.steps_per_epoch, stage.steps)]
        table.add_row(stage.name, *counts, disk, hours)
    console.print(table)
    for line in _explanations(config, stages):
        console.print(line, soft_wrap=True)


def _estimate(number: float | None, basis: Basis | None, digits: int) -> str:
    """Write a number to so many digits; `~` and two significant digits say that it rests on the calibration."""
    if number is None:
        return "--"
    if basis != "calibration":
        return f"{number:,.{digits}f}"
    return f"~{float(f'{number:.2g}'):,.{0 if number >= 10 else digits}f}"


def _explanations(config: SweepConfig, stages: list[StagePlan]) -> Iterator[str]:
    from runners.launch.calibration import DEVICES, FACTOR

    if any("calibration" in (stage.disk_from, stage.hours_from) and stage.done < stage.cells for stage in stages):
        device = DEVICES["cuda" if config.resources.gpus else "cpu"].name
        yield f"~ not measured here: a calibration for {device}, right within a factor of about {FACTOR}"
        yield "  (docs/planning.md); --measure trains a few steps on this machine instead"
    if any(stage.hours is None for stage in stages):
        yield "-- unknown: the calibration lacks the backbone; --measure trains a few steps to estimate it"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@launching.command()
def validate(sweep: Sweep, set_: Set = None) -> None:
    """Check a sweep file, its data and its weights without training.

    Example: goal-sweep validate my_sweep.yaml
    """
    opened = SweepArguments(sweep, set_).open()
    opened.check_trainable()
    splits = ", ".join(
        f"{s.name} {s.num_images} images {s.num_captions} captions" for s in opened.dataset.splits.values()
    )
    console.print(
        f"{opened.config.name}: valid. {len(opened.cells)} cells. {opened.dataset.name}: {splits}", soft_wrap=True
    )


@launching.command()
def status(sweep: Sweep, set_: Set = None, store: StoreDir = None, as_json: AsJson = False) -> None:
    """Show the current 5x3 grid of each block. Changes nothing.

    Example: goal-sweep status quickstart.yaml
    """
    from runners.launch.live import overview
    from runners.launch.squares import signs_of

    opened = SweepArguments(sweep, set_, store).open()
    progress = opened.progress()
    if as_json:
        rows = [
            {
                "cell": one.training.cell.id,
                "name": one.training.name,
                "stage": one.training.stage.name,
                "state": one.state,
                "epoch": one.epoch,
                "epochs": one.epochs,
                "val_rsum": None if math.isnan(one.best_rsum) else one.best_rsum,
                "reason": one.reason,
                "damaged": one.damaged,
                "test": dict(one.test),
                "imported": one.imported,
            }
            for one in progress.standings
        ]
        print(json.dumps(rows, indent=2))
        return
    console.print(overview(progress, opened.config.name, signs_of(console)))


@launching.command()
def logs(
    sweep: Sweep,
    cell: Annotated[str | None, typer.Argument(help="The cell's id or its beginning, or a part of its name.")] = None,
    set_: Set = None,
    store: StoreDir = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed last, with reason and trace.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing new lines.")] = False,
) -> None:
    """Print the logs of a sweep's cells.

    Example: goal-sweep logs quickstart.yaml sig-ms/cir --follow
    """
    show_logs(SweepArguments(sweep, set_, store).open(), cell, failed=failed, follow=follow, write=print)


def show_logs(
    sweep: OpenedSweep, pattern: str | None, *, failed: bool, follow: bool, write: Callable[[str], None]
) -> None:
    """Print logs, stage by stage and cell by cell.

    Args:
        sweep: the sweep.
        pattern: beginning of a cell id, or part of a cell's name; None for all cells.
        failed: print only trainings whose last attempt failed, each with that attempt's reason and trace.
        follow: keep printing new lines until interrupted.
        write: receives each line.

    Raises:
        GoalError: no cell matches the pattern.
    """
    chosen = [one for one in sweep.trainings if pattern is None or _matches(one.cell, pattern)]
    if not chosen:
        raise GoalError(f"no cell of {sweep.config.name} has {pattern!r} in its id or name")
    logged = False
    for training in chosen:
        lines = list(_log_of(sweep.store.folder(training), failed=failed))
        if lines:
            logged = True
            write(f"== {training.name}  {training.cell.id}")
            for line in lines:
                write(line)
    if follow:
        _follow({sweep.store.folder(training).log_path: training.name for training in chosen}, write)
    elif not logged:
        write("no failed cell" if failed else "nothing has been logged yet")


def _log_of(folder: TrainingFolder, *, failed: bool) -> Iterator[str]:
    """The log of a training, then how its last attempt failed. With ``failed``, nothing if it did not fail."""
    newest = folder.attempts.newest()
    last_failed = newest is not None and newest.outcome == "failed"
    if failed and not last_failed:
        return
    log = folder.log_path.read_text(errors="replace").rstrip() if folder.log_path.exists() else ""
    if log:
        yield log
    if newest is not None and last_failed and (failed or not log):
        yield f"attempt {newest.n} failed: {newest.reason}"
        yield from filter(None, [newest.trace.rstrip()])


def _matches(cell: Cell, pattern: str) -> bool:
    return cell.id.startswith(pattern) or pattern in cell.label


def _follow(names: dict[Path, str], write: Callable[[str], None]) -> None:
    sizes = {path: path.stat().st_size if path.exists() else 0 for path in names}
    while True:
        time.sleep(_POLL_SECONDS)
        for path, name in names.items():
            if path.exists() and path.stat().st_size > sizes[path]:
                with path.open("rb") as file:
                    file.seek(sizes[path])
                    added = file.read()
                sizes[path] += len(added)
                for line in added.decode(errors="replace").splitlines():
                    write(f"{name} | {line}")
