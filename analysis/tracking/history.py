"""The metrics of every epoch, read from tracking in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pandas as pd
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from analysis.errors import AnalysisError
from analysis.tracking.gc_pause import paused_collection

_CHUNK = 200
_POINTS_PER_RUN = 5000
_THREADS = 8
_COLUMNS = ("run_id", "metric", "step", "value")
_Row = tuple[str, str, int, float]


def fetch_history(tracking_uri: str, run_ids: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Every logged value of some metrics of some runs.

    A database answers for 200 runs at once; a server is asked run by run, several at a time.

    Args:
        tracking_uri: MLflow tracking URI.
        run_ids: the runs.
        metrics: names of metrics; a run without one has no row of it.

    Returns:
        Columns ``run_id``, ``metric``, ``step`` (the epoch, from 1) and ``value``, one row for each run, metric and
        step (of repeated ones the newest), ordered by them.

    Raises:
        AnalysisError: tracking does not answer.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    bulk = getattr(client._tracking_client.store, "get_metric_history_bulk", None)
    try:
        with paused_collection():
            rows = list(_from_database(bulk, run_ids, metrics) if bulk else _from_server(client, run_ids, metrics))
    except MlflowException as error:
        raise AnalysisError(f"cannot read metrics at {tracking_uri}: {str(error).splitlines()[0]}") from error
    frame = pd.DataFrame(rows, columns=list(_COLUMNS))
    return (
        frame.drop_duplicates(["run_id", "metric", "step"], keep="last")
        .sort_values(["run_id", "metric", "step"])
        .reset_index(drop=True)
    )


def _from_database(bulk: Any, run_ids: Sequence[str], metrics: Sequence[str]) -> Iterator[_Row]:
    for start in range(0, len(run_ids), _CHUNK):
        part = list(run_ids[start : start + _CHUNK])
        for metric in metrics:
            for found in bulk(part, metric, _POINTS_PER_RUN * len(part)):
                yield found.run_id, metric, int(found.step), float(found.value)


def _from_server(client: MlflowClient, run_ids: Sequence[str], metrics: Sequence[str]) -> Iterator[_Row]:
    def one(place: tuple[str, str]) -> list[_Row]:
        history = sorted(client.get_metric_history(*place), key=lambda point: point.timestamp)
        return [(*place, int(point.step), float(point.value)) for point in history]

    with ThreadPoolExecutor(_THREADS) as pool:
        for rows in pool.map(one, [(run_id, metric) for run_id in run_ids for metric in metrics]):
            yield from rows
