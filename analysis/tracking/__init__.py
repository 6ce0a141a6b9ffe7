"""Reads MLflow into frames and plain values, and writes descriptions and files to MLflow's page.

The only room that imports MLflow. Every room above may import it; it imports none of them.
"""

from __future__ import annotations

import os

# Read by mlflow at each transfer. Its server offers addresses on the object storage behind it; where only the server
# reaches that storage, each file would take minutes to fail.
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "false")
os.environ.setdefault("MLFLOW_ENABLE_PROXY_MULTIPART_DOWNLOAD", "false")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")  # one bar per training, over the report

from analysis.tracking.fetch import SweepRuns, fetch_runs
from analysis.tracking.mlflow_page import LOCAL_PAGE, attach_files, publish_summary, run_url
from analysis.tracking.models import publish_models
from analysis.tracking.training_records import TripletRecord, fetch_history, fetch_records, pooled

__all__ = [
    "LOCAL_PAGE",
    "SweepRuns",
    "TripletRecord",
    "attach_files",
    "fetch_history",
    "fetch_records",
    "fetch_runs",
    "pooled",
    "publish_models",
    "publish_summary",
    "run_url",
]
