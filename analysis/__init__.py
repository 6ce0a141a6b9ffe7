"""The reading: tracking to tables, heatmaps, statistics and reports. Imports none of the other packages."""

from __future__ import annotations

from analysis.errors import AnalysisError
from analysis.published import published_blocks, render_published
from analysis.report.report import ReportResult, write_report
from analysis.statistics.aggregate import aggregate, cells_frame
from analysis.tracking.attach import attach_report
from analysis.tracking.fetch import SweepRuns, fetch_runs

__all__ = [
    "AnalysisError",
    "ReportResult",
    "SweepRuns",
    "aggregate",
    "attach_report",
    "cells_frame",
    "fetch_runs",
    "published_blocks",
    "render_published",
    "write_report",
]
