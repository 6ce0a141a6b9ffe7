"""What a run recorded during training: its metrics by epoch, and the similarities of its triplets."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pandas as pd
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from numpy.typing import NDArray

from analysis.errors import AnalysisError, first_line
from analysis.run_schema import TRIPLETS_ARTIFACT
from analysis.tracking.fetch import collector_paused

_CHUNK = 200
_POINTS_PER_RUN = 5000
_THREADS = 8
_COLUMNS = ("run_id", "metric", "step", "value")
_Row = tuple[str, str, int, float]


def fetch_history(tracking_uri: str, run_ids: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Every logged value of some metrics of some runs.

    A database is queried for 200 runs at a time, a server run by run in parallel.

    Args:
        tracking_uri: MLflow tracking URI.
        run_ids: the runs.
        metrics: names of metrics; a run without a metric has no row for it.

    Returns:
        Columns ``run_id``, ``metric``, ``step`` (the epoch, from 1) and ``value``: one row for each run, metric and
        step, in this order; of values that were logged twice, the newest.

    Raises:
        AnalysisError: tracking cannot be read.
    """
    client = MlflowClient(tracking_uri=tracking_uri)
    bulk = getattr(client._tracking_client.store, "get_metric_history_bulk", None)
    try:
        with collector_paused():
            rows = list(_from_database(bulk, run_ids, metrics) if bulk else _from_server(client, run_ids, metrics))
    except MlflowException as error:
        raise AnalysisError(f"cannot read metrics at {tracking_uri}: {first_line(error)}") from error
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
    def history_of(run_and_metric: tuple[str, str]) -> list[_Row]:
        history = sorted(client.get_metric_history(*run_and_metric), key=lambda point: point.timestamp)
        return [(*run_and_metric, int(point.step), float(point.value)) for point in history]

    with ThreadPoolExecutor(_THREADS) as pool:
        for rows in pool.map(history_of, [(run_id, metric) for run_id in run_ids for metric in metrics]):
            yield from rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripletRecord:
    """Counts of triplets by (s_p, s_n) and epoch."""

    low: float
    high: float
    num_bins: int
    epochs: tuple[int, ...]
    """The epochs that were recorded, in order."""
    entries: NDArray[np.int32]
    """(K, 3), a row for each epoch and nonempty bin: epoch, s_p's bin x num_bins + s_n's bin, number of triplets;
    several rows may have the same epoch and bin."""
    weight: NDArray[np.float64]
    """(num_bins, num_bins): the objective's triplet weight T at the bin centres, s_p along the first axis."""

    @property
    def centres(self) -> NDArray[np.float64]:
        """The bin centres of either axis, (num_bins,)."""
        return self.low + (np.arange(self.num_bins) + 0.5) * (self.high - self.low) / self.num_bins

    def total(self, after: int = 0) -> NDArray[np.float64]:
        """The number of triplets in each bin over the epochs later than ``after``, (num_bins, num_bins)."""
        chosen = self.entries[self.entries[:, 0] > after]
        flat = np.bincount(chosen[:, 1], chosen[:, 2].astype(np.float64), self.num_bins**2)
        return flat.astype(np.float64).reshape(self.num_bins, self.num_bins)

    def path(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean s_p and mean s_n of each epoch, accurate to half a bin; (E,) each, NaN for an epoch without triplets."""
        epoch = np.searchsorted(self.epochs, self.entries[:, 0])
        pos, neg = np.divmod(self.entries[:, 1], self.num_bins)
        count = self.entries[:, 2].astype(np.float64)
        size = len(self.epochs)
        totals = np.bincount(epoch, count, size)
        totals[totals == 0] = np.nan
        means = [np.bincount(epoch, count * self.centres[bins], size) / totals for bins in (pos, neg)]
        return means[0], means[1]


def parse_record(content: bytes) -> TripletRecord:
    """Read the file of a triplet record; pickled objects, which could execute code, are rejected.

    Raises:
        ValueError: it is not a triplet record.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            bins, entries = int(file["num_bins"]), np.asarray(file["entries"], np.int32).reshape(-1, 3)
            record = TripletRecord(
                low=float(file["low"]),
                high=float(file["high"]),
                num_bins=bins,
                epochs=tuple(int(epoch) for epoch in file["epochs"]),
                entries=entries,
                weight=np.asarray(file["weight"], np.float64).reshape(bins, bins),
            )
    except (OSError, KeyError, IndexError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"not a triplet record: {error}") from error
    outside = (entries[:, 1] < 0) | (entries[:, 1] >= bins * bins) | ~np.isin(entries[:, 0], record.epochs)
    if outside.any() or list(record.epochs) != sorted(set(record.epochs)):
        raise ValueError("not a triplet record: bins or epochs out of range")
    return record


def pooled(records: Sequence[TripletRecord]) -> TripletRecord:
    """The records of several seeds as one.

    Args:
        records: at least one.

    Raises:
        ValueError: their triplet weights differ, so they do not belong to one objective.
    """
    first = records[0]
    if not all(np.array_equal(record.weight, first.weight) for record in records):
        raise ValueError("the seeds' triplet weights differ")
    epochs = sorted({epoch for record in records for epoch in record.epochs})
    return replace(first, epochs=tuple(epochs), entries=np.concatenate([record.entries for record in records]))


def fetch_records(tracking_uri: str, artifact_uris: Mapping[str, str]) -> tuple[dict[str, TripletRecord], list[str]]:
    """Read the triplet records of several runs.

    Args:
        tracking_uri: MLflow tracking URI.
        artifact_uris: run id to the location of the run's artifacts.

    Returns:
        The records by run id, and one line for every run whose record cannot be read.
    """
    client = MlflowClient(tracking_uri=tracking_uri)

    def record_of(item: tuple[str, str]) -> tuple[str, TripletRecord | str]:
        run_id, uri = item
        try:
            return run_id, parse_record(_read(client, run_id, uri))
        except Exception as error:  # each artifact store raises the errors of its own library
            return run_id, f"the triplet record of run {run_id} cannot be read: {first_line(error)[:200]}"

    records: dict[str, TripletRecord] = {}
    problems: list[str] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for run_id, answer in pool.map(record_of, artifact_uris.items()):
            if isinstance(answer, str):
                problems.append(answer)
            else:
                records[run_id] = answer
    return records, problems


def _read(client: MlflowClient, run_id: str, artifact_uri: str) -> bytes:
    location: Any = urlparse(artifact_uri)
    if location.scheme in ("", "file"):  # the client would copy each file first
        return Path(unquote(location.path), TRIPLETS_ARTIFACT).read_bytes()
    with TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, TRIPLETS_ARTIFACT, folder)).read_bytes()
