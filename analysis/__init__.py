"""Reads results: from tracking to tables, heatmaps, statistics and reports. Imports none of the other packages.

Only `runners.cli` imports it. Its rooms, each of which sees those below it::

    report       sections, tables and pages; what `goal-sweep report` writes
    published    the numbers of the GOAL paper
    figures      pictures
    statistics   means, differences, effects, ranks, learning curves
    tracking     MLflow, read into frames; alone imports mlflow

`blocks` (what a table is made of) and `run_schema` (the names in tracking) lie below all rooms.
"""

from __future__ import annotations

from analysis.errors import AnalysisError, NoRunsError
from analysis.published import published_blocks
from analysis.report import ReportResult, attach_report, refresh_summary, render_published, write_report
from analysis.statistics import aggregate, cells_frame
from analysis.tracking import SweepRuns, fetch_runs, publish_summary

__all__ = [
    "AnalysisError",
    "NoRunsError",
    "ReportResult",
    "SweepRuns",
    "aggregate",
    "attach_report",
    "cells_frame",
    "fetch_runs",
    "publish_summary",
    "published_blocks",
    "refresh_summary",
    "render_published",
    "write_report",
]
