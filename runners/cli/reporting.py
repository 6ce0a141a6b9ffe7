"""What `goal-sweep report`, `sync` and `import` do with `analysis`; with `runners.cli.app` all that imports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from analysis import (
    AnalysisError,
    ReportResult,
    attach_report,
    publish_summary,
    refresh_summary,
    render_published,
    write_report,
)
from analysis.report import REPORT_LIST
from goal_core.atomic import replace_bytes
from goal_core.errors import GoalError
from runners.tracking.uri import resolve_uri
from sweeps import SweepConfig, load_sweep

Scale = Literal["paper", "colour-blind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPlace:
    """Where a sweep's numbers are, and where its report goes."""

    name: str
    uri: str
    """MLflow tracking URI, resolved."""
    folder: Path

    @classmethod
    def of(cls, config: SweepConfig) -> ReportPlace:
        """The place of a sweep; its data need not be here."""
        root = Path(config.store)
        uri = resolve_uri(config.tracking, root)
        return cls(name=config.name, uri=uri, folder=root / "reports" / config.name)


def places_of(sweeps: Sequence[str], overrides: Sequence[str]) -> list[ReportPlace]:
    """The places of several sweeps, by path or shipped name.

    Raises:
        GoalError: a sweep file is not as it should be, or one is given twice.
    """
    places = [ReportPlace.of(load_sweep(sweep, overrides)) for sweep in sweeps]
    if len({(place.uri, place.name) for place in places}) < len(places):
        raise GoalError(f"the same sweep is given twice: {', '.join(place.name for place in places)}")
    return places


def report(
    places: Sequence[ReportPlace], out: Path | None, compare: Literal["published"] | None, scale: Scale
) -> ReportResult:
    """Write the report of the first sweep, with the others beside it, and attach it to its MLflow run.

    Raises:
        GoalError: tracking does not hold what a report needs, or refuses it.
    """
    first, *others = places
    folder = out or first.folder
    others_named = [(place.uri, place.name) for place in others]
    try:
        result = write_report(first.uri, first.name, folder, compare, others=others_named, scale=scale)
        if result.parent_run_id is not None:
            attach_report(first.uri, result.parent_run_id, folder)
            publish_summary(first.uri, result.parent_run_id, first.name, result.blocks)
    except AnalysisError as error:
        raise GoalError(str(error)) from error
    return result


def is_of(place: ReportPlace, outcome: str) -> bool:
    """Whether the report in the store was written by a launch that ended with this outcome."""
    mark = _mark(place)
    return (place.folder / "report.html").is_file() and mark.is_file() and mark.read_text() == outcome


def mark(place: ReportPlace, outcome: str) -> None:
    """Note which outcome of a launch the report in the store shows.

    Args:
        place: the sweep's.
        outcome: digest of its cells and how each ended.

    Raises:
        StorageError: the disk refuses.
    """
    replace_bytes(_mark(place), outcome.encode())


def _mark(place: ReportPlace) -> Path:
    return place.folder.with_name(f"{place.name}.of")


def print_result(result: ReportResult, console: Console) -> None:
    """Say how complete a report is and where it lies."""
    missing = "" if result.is_complete else f" ({result.num_failed} failed, gaps are marked)"
    console.print(f"report: {result.num_counted} of {result.num_expected} results{missing}", soft_wrap=True)
    console.print(f"        {result.out_dir / 'report.html'}", soft_wrap=True)


def published(name: str, out: Path, scale: Scale) -> tuple[Path, ...]:
    """Render the paper's own tables from its numbers.

    Raises:
        GoalError: there are no such numbers.
    """
    try:
        return render_published(name, out, scale)
    except AnalysisError as error:
        raise GoalError(str(error)) from error


def restore(place: ReportPlace) -> bool:
    """After tracking was rebuilt: attach the report that lies in the store, and describe the sweep again.

    Returns:
        Whether there was a report to attach.

    Raises:
        GoalError: tracking refuses.
    """
    has_report = (place.folder / REPORT_LIST).is_file()
    try:
        parent = refresh_summary(place.uri, place.name)
        if has_report and parent is not None:
            attach_report(place.uri, parent, place.folder)
    except AnalysisError as error:
        if "holds no run of a cell yet" in str(error):
            return False
        raise GoalError(str(error)) from error
    return has_report and parent is not None
