"""From a report to the runs behind it, in MLflow's page."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.tracking.fetch import SweepRuns
from analysis.tracking.run_schema import RSUM, metric_key

LOCAL_PAGE = "http://127.0.0.1:5000"
"""Where `goal-sweep ui` serves a tracking store that is a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLink:
    """One run."""

    name: str
    url: str
    status: str
    rsum: str
    """Test rsum, or empty."""
    counted: str
    """``yes``, or why it does not count."""


def run_links(sweep: SweepRuns, tracking_uri: str) -> tuple[RunLink, ...]:
    """A link for every run of a sweep, best rsum first.

    Args:
        sweep: its runs.
        tracking_uri: a server's own page is linked; a database's is where `goal-sweep ui` shows it.
    """
    page = tracking_uri.rstrip("/") if tracking_uri.startswith(("http://", "https://")) else LOCAL_PAGE
    rsum = metric_key(*RSUM)
    ordered = sweep.runs.sort_values([rsum] if rsum in sweep.runs else ["run_name"], ascending=rsum not in sweep.runs)
    return tuple(
        RunLink(
            name=str(row["run_name"]),
            url=f"{page}/#/experiments/{row['experiment_id']}/runs/{row['run_id']}",
            status=str(row["status"]),
            rsum=f"{row[rsum]:.1f}" if rsum in row and row[rsum] == row[rsum] else "",
            counted=str(row["excluded"]) or "yes",
        )
        for row in ordered.to_dict("records")
    )
