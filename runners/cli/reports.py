"""Reports for the commands `launch`, `report`, `sync` and `ui`. This module calls `analysis`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Literal

from rich.console import Console

from goal_sweep.analysis.report.folder import REPORT_LIST, files_of_report
from goal_sweep.analysis.report.sentences import flaws
from goal_sweep.analysis.report.verdict import more_seeds
from goal_sweep.analysis.report.writing import ReportResult, write_report
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import images_text
from goal_sweep.analysis.wording import seeds_text
from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.runners.cli.models import stored_results
from goal_sweep.runners.cli.options import Scale, SweepArguments
from goal_sweep.runners.store import local_root
from goal_sweep.runners.tracking.experiment import SweepPage
from goal_sweep.runners.tracking.uri import TrackingError, read_only, resolve_uri, sqlite_file
from goal_sweep.sweeps import ResolvedSweep, SweepConfig, SweepPlaces
from goal_sweep.sweeps.reading.load import load_places


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTarget:
    """Where a sweep's numbers come from, and where its report goes. The sweep's data need not be on this machine."""

    config: SweepPlaces
    """The sweep, or of one with plugins its places."""
    asked: bool = False
    """Whether the person named the tracking URI or launched; else no server is contacted."""

    @property
    def uri(self) -> str:
        """MLflow tracking URI, resolved."""
        return resolve_uri(self.config.tracking.uri, local_root(self.config.store))

    @property
    def folder(self) -> Path:
        """The report's folder, in the store."""
        return local_root(self.config.store) / "reports" / self.config.name

    def results(self) -> SweepResults:
        """The results in the store."""
        return stored_results(self.config)

    def page(self) -> SweepPage | str:
        """The sweep in MLflow, or why nothing can be written there."""
        if not self.asked and sqlite_file(self.uri) is None:
            return f"a server that the sweep file names is contacted only with --tracking-uri {self.uri}"
        try:
            return read_only(self.uri) or SweepPage(self.uri, self.config.name)
        except TrackingError as error:
            return str(error)

    @property
    def mark(self) -> Path:
        """The file beside the report with the digest of the launch's outcome that the report shows."""
        return self.folder.with_name(f"{self.config.name}.of")

    def shows(self, outcome: str) -> bool:
        """Whether the report in the store was written by a launch that ended with this outcome."""
        return (self.folder / REPORT_LIST).is_file() and self.mark.is_file() and self.mark.read_text() == outcome


def report_target(sweep: str, overrides: Sequence[str]) -> ReportTarget:
    """The target of a sweep, given by path or shipped name."""
    asked = any(text.startswith(("tracking=", "tracking.uri=")) for text in overrides)
    return ReportTarget(config=load_places(sweep, overrides), asked=asked)


def report(
    target: ReportTarget,
    out: Path | None = None,
    compare: Literal["published"] | None = None,
    scale: Scale = "paper",
    *,
    attach: bool = True,
) -> tuple[ReportResult, str]:
    """Write the report of a sweep, and attach it to its MLflow run if that can answer.

    Returns:
        The report, and why it is not attached; empty if it is.
    """
    folder, results = out or target.folder, target.results()
    page = target.page() if attach else "tracking is not up to date"
    address = page.run_address if isinstance(page, SweepPage) else ""
    try:
        result = write_report(results, folder, compare_with_paper=compare is not None, scale=scale, mlflow_run=address)
    except OSError as error:
        raise GoalError(f"no report in {folder}: {error}; give another folder with --out") from error
    if isinstance(page, str):
        return result, page
    try:
        page.attach_report(folder, files_of_report(folder), result.verdict)
    except TrackingError as error:
        return result, str(error)
    return result, ""


def settling(target: ReportTarget, result: ReportResult, arguments: SweepArguments) -> str:
    """The launch of the seeds that the verdict asks for; empty where it asks for none, or their number is not known.

    So it is where the settings are others than the report's, whose trainings would not be among these.
    """
    more = more_seeds(result.inputs)
    results, config = result.inputs.results, target.config
    if more is None or not isinstance(config, SweepConfig) or _changed(config, results):
        return ""
    of_file, there = len(config.seeds) - int(arguments.seeds or 0), len(results.header.seeds)
    if there > of_file:  # seeds were added; doing so until an interval excludes 0 makes more answers wrong
        return ""
    number = there + more - of_file
    return replace(arguments, seeds=f"+{number}" if number > 0 else None).command("launch", with_tracking=True)


def print_result(result: ReportResult, console: Console, settle: str = "") -> None:
    """Print how complete a report is, what it says first, which command would settle more, and where the report is."""
    counts = ", ".join(f"{count} {status}" for status, count in result.missing.items() if count)
    missing = f" ({counts}; gaps are marked)" if counts else ""
    console.print(f"report: {result.num_counted} of {result.num_expected} results{missing}")
    results, blocks = result.inputs.results, result.inputs.blocks
    for text in filter(None, (*result.verdict, *flaws(results, blocks), images_text(results.counted))):
        shown = fill(text, console.width, initial_indent=" " * 8, subsequent_indent=" " * 10, break_on_hyphens=False)
        console.print(shown, markup=False)
    if settle:
        console.print(f"        To settle it: {settle}")
    console.print(f"        {result.folder / 'report.html'}")


def warnings(target: ReportTarget, results: SweepResults) -> list[str]:
    """What the settings ask for and the results do not show: they are of the sweep as it was last launched."""
    if not isinstance(config := target.config, SweepConfig):
        return [f"{config.name} has plugins, which are not run here: settings that changed since are not seen."]
    there, lines = results.header.seeds, []
    if {*config.seeds} != {*there}:
        lacking = " Launch with the same settings to train what is missing." * bool({*config.seeds} - {*there})
        lines.append(
            f"The settings ask for {seeds_text(config.seeds)}. The results are of the sweep as last launched, with "
            f"{seeds_text(there)}.{lacking}"
        )
    if changed := _changed(config, results):
        lines.append(f"The results are of the sweep as last launched, with other settings (then -> here): {changed}.")
    return lines


def _changed(config: SweepConfig, results: SweepResults) -> str:
    """The settings that the sweep of results had otherwise; its seeds are not compared."""
    from goal_sweep.runners.results import changed_settings  # with pyarrow

    header = results.header
    stored, config = header.requested, replace(config, seeds=header.seeds)
    asked = ResolvedSweep(config=config, data_fingerprint=stored.data_fingerprint, weights=stored.weights)
    return changed_settings(stored, asked.requested)
