"""Reports for the commands `launch`, `report`, `sync` and `ui`. This module calls `analysis`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from analysis import (
    AnalysisError,
    NoRunsError,
    ReportResult,
    attach_report,
    publish_models,
    publish_summary,
    refresh_summary,
    render_published,
    write_report,
)
from analysis.blocks import Block, Grid, seeds_text
from analysis.report import REPORT_LIST
from goal_core.basics.atomic import replace_bytes
from goal_core.basics.errors import GoalError
from goal_core.checkpoints import BEST
from runners.cli.options import Scale
from runners.store import LOG, Store, local_root
from runners.tracking.moved import correct_moved
from runners.tracking.uri import read_only, resolve_uri, sqlite_file
from sweeps import SweepConfig, load_sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTarget:
    """Where a sweep's numbers come from, and where its report goes."""

    name: str
    uri: str
    """MLflow tracking URI, resolved."""
    folder: Path
    store: str
    """Location of the store."""
    seeds: tuple[int, ...]
    """The seeds that its settings ask for."""

    @classmethod
    def of(cls, config: SweepConfig) -> ReportTarget:
        """The target of a sweep, whose data need not be on this machine."""
        root = local_root(config.store)
        uri = resolve_uri(config.tracking, root)
        folder = root / "reports" / config.name
        return cls(name=config.name, uri=uri, folder=folder, store=config.store, seeds=config.seeds)

    def locate(self, cell_id: str, stage: str, stage_key: str) -> dict[str, Path]:
        """The files of a training that a reader may want to open, if they are on this machine."""
        training = Store(local_root(self.store)).folder_of(cell_id, stage, stage_key)
        found = {"log": training.place(LOG), "checkpoint": training.place(BEST)}
        return {name: path for name, path in found.items() if path.is_file()}


def report_targets(sweeps: Sequence[str], overrides: Sequence[str]) -> list[ReportTarget]:
    """The targets of several sweeps, given by path or shipped name.

    Raises:
        GoalError: a sweep file is invalid, or the same sweep is given twice.
    """
    targets = [ReportTarget.of(load_sweep(sweep, overrides)) for sweep in sweeps]
    if len({(target.uri, target.name) for target in targets}) < len(targets):
        raise GoalError(f"the same sweep is given twice: {', '.join(target.name for target in targets)}")
    return targets


def require_database(target: ReportTarget) -> None:
    """Check that a sweep that is tracked in a file of this machine has been launched.

    Raises:
        GoalError: there is no such file.
    """
    database = sqlite_file(target.uri)
    if database is not None and not (database.is_file() and database.stat().st_size):
        raise GoalError(f"no tracking database at {database}; launch the sweep first, or give its --store")


def report(
    targets: Sequence[ReportTarget], out: Path | None, compare: Literal["published"] | None, scale: Scale
) -> ReportResult:
    """Write the report of the first sweep, compared with the others, and attach it to its MLflow run.

    From a results folder that is read-only, the report can be written elsewhere; it is then not attached.

    Raises:
        GoalError: MLflow lacks what a report needs, or the report's folder cannot be written.
    """
    first, *others = targets
    folder = out or first.folder
    for target in targets:
        require_database(target)
    _require_writable(folder)
    writable = not read_only(first.uri)
    if writable:
        correct_moved(first.uri)
    others_named = [(target.uri, target.name) for target in others]
    try:
        result = write_report(first.uri, first.name, folder, compare, others_named, scale, locate=first.locate)
        if writable and result.parent_run_id is not None:
            attach_report(first.uri, result.parent_run_id, folder)
            notes = (*result.origin_notes, *result.tuning_notes)
            publish_summary(first.uri, result.parent_run_id, first.name, result.blocks, notes)
            publish_models(first.uri, result.parent_run_id, first.store, result.best_runs)
    except AnalysisError as error:
        raise GoalError(str(error)) from error
    return result


def _require_writable(folder: Path) -> None:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise GoalError(f"the report cannot be written to {folder}, which is read-only; give another folder with --out")


def is_current(target: ReportTarget, outcome: str) -> bool:
    """Whether the report in the store was written by a launch that ended with this outcome."""
    mark = _mark(target)
    return (target.folder / "report.html").is_file() and mark.is_file() and mark.read_text() == outcome


def mark_current(target: ReportTarget, outcome: str) -> None:
    """Record which outcome of a launch the report in the store shows.

    Args:
        target: the target of the sweep.
        outcome: digest of its trainings and how each ended.

    Raises:
        StorageError: the file cannot be written.
    """
    replace_bytes(_mark(target), outcome.encode())


def _mark(target: ReportTarget) -> Path:
    return target.folder.with_name(f"{target.name}.of")


def print_result(result: ReportResult, console: Console) -> None:
    """Print how complete a report is and where it is."""
    missing = "" if result.is_complete else f" ({result.num_failed} failed, gaps are marked)"
    console.print(f"report: {result.num_counted} of {result.num_expected} results{missing}", soft_wrap=True)
    for note in result.tuning_notes:
        console.print(f"        {note}", soft_wrap=True, markup=False)
    console.print(f"        {result.out_dir / 'report.html'}", soft_wrap=True)


def warnings(targets: Sequence[ReportTarget], result: ReportResult) -> list[str]:
    """What the settings ask for and the report does not show: it shows the sweep as it was last launched."""
    there = set(result.seeds)
    absent = [seed for seed in targets[0].seeds if seed not in there]
    beyond = [seed for seed in result.seeds if seed not in targets[0].seeds]
    shown = f"The report shows the sweep as last launched, with {seeds_text(result.seeds)}."
    found = []
    if absent:
        has, them = ("has", "it") if len(absent) == 1 else ("have", "them")
        again = f"Launch with the same settings to train {them}."
        found.append(f"{seeds_text(absent).capitalize()} {has} no results. {again} {shown}")
    if beyond:
        are = "is" if len(beyond) == 1 else "are"
        found.append(f"{seeds_text(beyond).capitalize()} {are} in the report, but not in the settings. {shown}")
    return found


def as_json(result: ReportResult, warned: Sequence[str]) -> dict[str, Any]:
    """What a script reads of a report: its files, the best objectives of each block and direction, and what is missing.

    Args:
        result: the report.
        warned: from `warnings`.
    """
    return {
        "report": str(result.out_dir / "report.html"),
        "files": [str(path) for path in result.files],
        "expected": result.num_expected,
        "counted": result.num_counted,
        "failed": result.num_failed,
        "seeds": list(result.seeds),
        "blocks": [_block_json(block) for block in result.blocks],
        **({"tuning": list(result.tuning_notes)} if result.tuning_notes else {}),
        "warnings": list(warned),
    }


def _block_json(block: Block) -> dict[str, Any]:
    names = ("dataset", "framework", "backbone", "stage", "variant")
    tables = {key: _grid_json(grid) for key, grid in block.grids.items() if grid.metric.name == "R@1"}
    missing = [
        {"objective": objective, "seed": gap.seed, "status": gap.status, "reason": gap.reason}
        for objective, gap in block.gaps
    ]
    point = {name: getattr(block.key, name) for name in ("point", "grid") if getattr(block.key, name)}
    return {name: getattr(block.key, name) for name in names} | point | {"best": tables, "missing": missing}


def _grid_json(grid: Grid) -> list[dict[str, Any]]:
    """The cells with the highest mean, and those that cannot be told apart from them."""
    best = {key: cell for key, cell in grid.cells.items() if key in grid.best()}
    level = sorted(f"{pair}/{triplet}" for pair, triplet in grid.near - best.keys())
    return [
        {"objective": f"{pair}/{triplet}", "mean": cell.mean, "std": cell.std, "seeds": cell.n, "level": level}
        for (pair, triplet), cell in best.items()
    ]


def published(name: str, out: Path, scale: Scale) -> tuple[Path, ...]:
    """Render the paper's own tables from its published numbers.

    Raises:
        GoalError: there are no published numbers of this name.
    """
    try:
        return render_published(name, out, scale)
    except AnalysisError as error:
        raise GoalError(str(error)) from error


def restore(target: ReportTarget) -> bool:
    """After tracking was rebuilt, attach the report in the store and write the sweep's descriptions again.

    Returns:
        Whether there was a report to attach.

    Raises:
        GoalError: MLflow cannot be written.
    """
    has_report = (target.folder / REPORT_LIST).is_file()
    try:
        parent = refresh_summary(target.uri, target.name, target.store)
        if has_report and parent is not None:
            attach_report(target.uri, parent, target.folder)
    except NoRunsError:
        return False
    except AnalysisError as error:
        raise GoalError(str(error)) from error
    return has_report and parent is not None
