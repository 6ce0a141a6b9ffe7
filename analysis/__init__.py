"""Turns tracked results into tables, heatmaps, statistics and reports. Imports none of the other packages.

Only `runners.cli` imports it. Each of its rooms may import those below it::

    report       the sections, tables and pages that `goal-sweep report` writes
    published    the numbers of the GOAL paper
    figures      heatmaps, curves and diagrams
    statistics   means, differences, effects, ranks, learning curves
    tracking     reads MLflow into frames; the only room that imports mlflow

`axes` (settings with several values), `tuning` (the choices of a tuned sweep), `blocks` (the contents of a table) and
`run_schema` (the names in tracking) lie below all rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.errors import AnalysisError, NoRunsError
    from analysis.report import (
        BlockLink,
        ReportResult,
        attach_report,
        block_links,
        refresh_summary,
        render_published,
        write_report,
    )
    from analysis.statistics import aggregate
    from analysis.tracking import fetch_runs, publish_models, publish_summary

_HOMES = {
    "analysis.errors": ("AnalysisError", "NoRunsError"),
    "analysis.statistics": ("aggregate",),
    "analysis.tracking": ("fetch_runs", "publish_models", "publish_summary"),
}


def __getattr__(name: str) -> Any:
    """Import an export when it is first used: `status` needs the one rule only, not MLflow and matplotlib."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((home for home, names in _HOMES.items() if name in names), "analysis.report")
    return getattr(import_module(home), name)


__all__ = [
    "AnalysisError",
    "BlockLink",
    "NoRunsError",
    "ReportResult",
    "aggregate",
    "attach_report",
    "block_links",
    "fetch_runs",
    "publish_models",
    "publish_summary",
    "refresh_summary",
    "render_published",
    "write_report",
]
