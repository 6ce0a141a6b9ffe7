"""Reports for the commands `launch`, `report`, `sync` and `ui`. This module calls `analysis`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent, wrap
from typing import Literal

from rich.console import Console

from goal_sweep.analysis.report.folder import REPORT_LIST, files_of_report
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.writing import ReportResult, best_trainings, write_report
from goal_sweep.analysis.results import SweepResults, read_results
from goal_sweep.analysis.wording import seeds_text
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.cli.options import Scale
from goal_sweep.runners.launch.tuning.refresh import refreshed_results
from goal_sweep.runners.results import has_table
from goal_sweep.runners.store import Store, local_root
from goal_sweep.runners.tracking.models import publish_best
from goal_sweep.runners.tracking.page import SweepPage
from goal_sweep.runners.tracking.runs import require_own
from goal_sweep.runners.tracking.uri import TrackingError, read_only, resolve_uri, sqlite_file
from goal_sweep.sweeps import SweepConfig, SweepNotFoundError, SweepPlaces, load_places


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTarget:
    """Where a sweep's numbers come from, and where its report goes."""

    name: str
    uri: str
    """MLflow tracking URI, resolved."""
    folder: Path
    config: SweepPlaces | None
    """The sweep, or of one with plugins its places; None where only its name in MLflow is known."""
    asked: bool = False
    """Whether the person named the tracking URI or launched; else no server is contacted."""

    @classmethod
    def of(cls, config: SweepPlaces, *, asked: bool = False) -> ReportTarget:
        """The target of a sweep, whose data need not be on this machine."""
        root = local_root(config.store)
        uri = resolve_uri(config.tracking, root)
        return cls(name=config.name, uri=uri, folder=root / "reports" / config.name, config=config, asked=asked)

    @property
    def _uncalled(self) -> str:
        """Why a server is not contacted; empty if it may be, or tracking is a file."""
        called = self.asked or sqlite_file(self.uri) is not None
        return "" if called else f"a server that the sweep file names is contacted only with --tracking-uri {self.uri}"

    def results(self) -> SweepResults:
        """The sweep's results: of the store, or, where this has none, of the table that MLflow keeps.

        Raises:
            GoalError: there are no results, or they cannot be read.
        """
        store = None if self.config is None else Store(self.config.store)
        content = refreshed_results(store, self.config) if store is not None and self.config is not None else None
        try:
            if content is not None and store is not None:
                root = store.root if store.root.is_dir() else None
                return read_results(content, f"the store {store.location}", root)
            if why := self._uncalled:
                raise TrackingError(why)
            page = SweepPage(self.uri, self.name)
            return read_results(page.results_table(), f"{self.uri}: the results of {self.name}")
        except TrackingError as error:
            if store is None:
                raise
            if content is None and has_table(store, self.name):
                said = f"the results table of {self.name} in the store {store.location} is damaged"
                raise GoalError(f"{said}; goal-sweep sync or launch writes it again, from the results") from error
            why = f" ({str(error).partition(';')[0]})" if self.asked else ""
            said = f"no results of {self.name} in the store {store.location}{why}"
            raise GoalError(f"{said}; launch the sweep first, or give its --store") from error

    def page(self) -> SweepPage | str:
        """The sweep in MLflow, or why nothing can be written there."""
        if why := self._uncalled or read_only(self.uri):
            return why
        try:
            page = SweepPage(self.uri, self.name)
            if self.config is not None and (store := Store(self.config.store)).id:
                require_own(self.name, page.parent.data.tags, store)
            return page
        except TrackingError as error:
            return str(error)


def report_targets(sweeps: Sequence[str], overrides: Sequence[str], tracking_uri: str | None) -> list[ReportTarget]:
    """The targets of several sweeps, given by path or shipped name, or by the name of an experiment in MLflow.

    Raises:
        GoalError: a sweep file is invalid, or the same sweep is given twice.
    """
    targets = []
    for sweep in sweeps:
        try:
            asked = any(text.startswith("tracking=") for text in overrides)
            targets.append(ReportTarget.of(load_places(sweep, overrides), asked=asked))
        except SweepNotFoundError:
            if tracking_uri is None:
                raise
            uri = resolve_uri(tracking_uri, Path.cwd())
            targets.append(ReportTarget(name=sweep, uri=uri, folder=Path(f"{sweep}-report"), config=None, asked=True))
    if len({(target.uri, target.name) for target in targets}) < len(targets):
        raise GoalError(f"the same sweep is given twice: {', '.join(target.name for target in targets)}")
    return targets


def report(
    targets: Sequence[ReportTarget],
    out: Path | None,
    compare: Literal["published"] | None,
    scale: Scale,
    *,
    attach: bool = True,
) -> tuple[ReportResult, str]:
    """Write the report of the first sweep, compared with the others, and attach it to its MLflow run.

    Args:
        targets: the sweeps.
        out: the report's folder; None for the one in the results folder.
        compare: whether to compare with the paper's numbers.
        scale: colours of the tables.
        attach: whether MLflow can be expected to answer.

    Returns:
        The report, and why it is not attached; empty if it is.

    Raises:
        GoalError: there are no results, or the report's folder cannot be written.
    """
    first, *others = targets
    folder = out or first.folder
    _require_writable(folder)
    results = first.results()
    named: dict[str, SweepResults] = {}
    for other in others:
        label = other.name if other.name not in (first.name, *named) else f"{other.name} ({len(named) + 2})"
        named[label] = other.results()
    page = first.page() if attach else "tracking is not up to date"
    address = page.address if isinstance(page, SweepPage) else ""
    result = write_report(
        results, folder, others=named, compare_with_paper=compare is not None, scale=scale, mlflow_page=address
    )
    if isinstance(page, str):
        return result, page
    try:
        page.attach_report(folder, files_of_report(folder))
        _publish(page, result.inputs, first)
    except TrackingError as error:
        return result, str(error)
    return result, ""


def _publish(page: SweepPage, inputs: Inputs, target: ReportTarget) -> None:
    """Let the best cell of a sweep be a model in MLflow."""
    if target.config is not None:
        publish_best(page, target.config.store, best_trainings(inputs))


def _require_writable(folder: Path) -> None:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        why = f"{existing} is {'read-only' if existing.is_dir() else 'a file'}"
        raise GoalError(f"the report cannot be written to {folder}: {why}; give another folder with --out")


def mark_of(target: ReportTarget) -> Path:
    """The file beside the report in the store that holds the digest of the launch's outcome which the report shows."""
    return target.folder.with_name(f"{target.name}.of")


def is_current(target: ReportTarget, outcome: str) -> bool:
    """Whether the report in the store was written by a launch that ended with this outcome."""
    mark = mark_of(target)
    return (target.folder / "report.html").is_file() and mark.is_file() and mark.read_text() == outcome


def print_result(result: ReportResult, console: Console) -> None:
    """Print how complete a report is and where it is."""
    counts = ", ".join(f"{count} {status}" for status, count in result.missing.items() if count)
    missing = f" ({counts}; gaps are marked)" if counts else ""
    console.print(f"report: {result.num_counted} of {result.num_expected} results{missing}")
    for text in result.first_words:
        lines = wrap(text, console.width - 8, subsequent_indent="  ", break_on_hyphens=False)
        console.print(indent("\n".join(lines), " " * 8), markup=False)
    console.print(f"        {result.folder / 'report.html'}")


def warnings(target: ReportTarget, result: ReportResult) -> list[str]:
    """What the settings ask for and the report does not show: it shows the sweep as it was last launched."""
    there = result.inputs.results.header.seeds
    asked = target.config.seeds if isinstance(target.config, SweepConfig) else there
    if set(asked) == set(there):
        return []
    return [
        f"The settings ask for {seeds_text(asked)}. The report shows the sweep as last launched, with "
        f"{seeds_text(there)}. Launch with the same settings to train what is missing."
    ]


def restore(target: ReportTarget) -> bool:
    """After tracking was rebuilt, attach the report in the store, and write the model of the best cell again.

    Returns:
        Whether there was a report to attach.

    Raises:
        GoalError: MLflow cannot be written.
    """
    page = SweepPage(target.uri, target.name)
    _publish(page, Inputs(results=target.results(), others={}), target)
    has_report = (target.folder / REPORT_LIST).is_file()
    if has_report:
        page.attach_report(target.folder, files_of_report(target.folder))
    return has_report


def page_link(target: ReportTarget, server: str) -> str:
    """Where an MLflow server shows the sweep's runs, or why it does not.

    Args:
        target: the target of the sweep.
        server: the server's address.
    """
    try:
        page = SweepPage(target.uri, target.name)
    except TrackingError as error:
        return f"no runs yet: {error}"
    runs = f"mlflow.search_runs(experiment_names=[{target.name!r}], filter_string=\"tags.`goal.role` = 'report'\")"
    python = f"mlflow.set_tracking_uri({server!r}); {runs}"
    return f"{page.address_at(server)}\ncharts: {page.charts_at(server)}\nin Python: {python}"
