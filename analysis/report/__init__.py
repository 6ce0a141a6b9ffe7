"""The report: its sections, tables and pages. The highest room: it imports all others.

Outside of `analysis`, only `runners.cli` imports it.
"""

from __future__ import annotations

from analysis.report.document import REPORT_LIST
from analysis.report.links import BlockLink, block_links
from analysis.report.published_tables import render_published
from analysis.report.report import ReportResult, attach_report, refresh_summary, write_report

__all__ = [
    "REPORT_LIST",
    "BlockLink",
    "ReportResult",
    "attach_report",
    "block_links",
    "refresh_summary",
    "render_published",
    "write_report",
]
