"""Where a run's triplets were in each epoch, from the record that the run has among its artifacts."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
from mlflow import MlflowClient
from numpy.typing import NDArray

from analysis.tracking.run_schema import TRIPLETS_ARTIFACT

_THREADS = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TripletRecord:
    """Counts of triplets by (s_p, s_n), an epoch at a time."""

    low: float
    high: float
    num_bins: int
    epochs: tuple[int, ...]
    """The epochs that were recorded, in order."""
    entries: NDArray[np.int32]
    """(K, 3), a row for each epoch and bin that is not empty: epoch, s_p's bin x num_bins + s_n's bin, triplets; an
    epoch and bin may come up more than once."""
    weight: NDArray[np.float64]
    """(num_bins, num_bins): the objective's triplet weight T at the bins' middles, s_p along the first axis."""

    @property
    def middles(self) -> NDArray[np.float64]:
        """The middles of the bins of either axis, (num_bins,)."""
        return self.low + (np.arange(self.num_bins) + 0.5) * (self.high - self.low) / self.num_bins

    def total(self, after: int = 0) -> NDArray[np.float64]:
        """Triplets by bin, (num_bins, num_bins), of the epochs later than ``after``."""
        chosen = self.entries[self.entries[:, 0] > after]
        flat = np.bincount(chosen[:, 1], chosen[:, 2].astype(np.float64), self.num_bins**2)
        return flat.astype(np.float64).reshape(self.num_bins, self.num_bins)

    def path(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The mean s_p and the mean s_n of each epoch, to half a bin; (E,) each, NaN for an epoch without triplets."""
        epoch = np.searchsorted(self.epochs, self.entries[:, 0])
        pos, neg = np.divmod(self.entries[:, 1], self.num_bins)
        count = self.entries[:, 2].astype(np.float64)
        size = len(self.epochs)
        totals = np.bincount(epoch, count, size)
        totals[totals == 0] = np.nan
        means = [np.bincount(epoch, count * self.middles[place], size) / totals for place in (pos, neg)]
        return means[0], means[1]


def parse_record(content: bytes) -> TripletRecord:
    """A record from its file, in which nothing can be executed.

    Raises:
        ValueError: it is not such a file.
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
    """Several seeds' records as one.

    Args:
        records: at least one.

    Raises:
        ValueError: their weight fields differ, so they are no seeds of one cell.
    """
    first = records[0]
    if not all(np.array_equal(record.weight, first.weight) for record in records):
        raise ValueError("the seeds' triplet weights differ")
    epochs = sorted({epoch for record in records for epoch in record.epochs})
    return replace(first, epochs=tuple(epochs), entries=np.concatenate([record.entries for record in records]))


def fetch_records(tracking_uri: str, artifact_uris: Mapping[str, str]) -> tuple[dict[str, TripletRecord], list[str]]:
    """The triplet records of some runs.

    Args:
        tracking_uri: MLflow tracking URI.
        artifact_uris: run id to where the run's artifacts are.

    Returns:
        The records by run id, and for every run whose record cannot be read a line that says why.
    """
    client = MlflowClient(tracking_uri=tracking_uri)

    def one(item: tuple[str, str]) -> tuple[str, TripletRecord | str]:
        run_id, uri = item
        try:
            return run_id, parse_record(_read(client, run_id, uri))
        except Exception as error:  # an artifact store fails in its own library's ways
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            return run_id, f"the triplet record of run {run_id} cannot be read: {reason}"

    records: dict[str, TripletRecord] = {}
    problems: list[str] = []
    with ThreadPoolExecutor(_THREADS) as pool:
        for run_id, answer in pool.map(one, artifact_uris.items()):
            if isinstance(answer, str):
                problems.append(answer)
            else:
                records[run_id] = answer
    return records, problems


def _read(client: MlflowClient, run_id: str, artifact_uri: str) -> bytes:
    place: Any = urlparse(artifact_uri)
    if place.scheme in ("", "file"):  # the client would copy each file first
        return Path(unquote(place.path), TRIPLETS_ARTIFACT).read_bytes()
    with TemporaryDirectory() as folder:
        return Path(client.download_artifacts(run_id, TRIPLETS_ARTIFACT, folder)).read_bytes()
