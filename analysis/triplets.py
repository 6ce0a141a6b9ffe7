"""The triplet record of a training: the similarities of its triplets by epoch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_THREADS = 8


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
    """The records of several seeds of one objective, at least one, as one; its settings give all the same weight T."""
    epochs = sorted({epoch for record in records for epoch in record.epochs})
    return replace(records[0], epochs=tuple(epochs), entries=np.concatenate([record.entries for record in records]))


def read_records(
    paths: Mapping[str, str], fetch: Callable[[str], Path]
) -> tuple[dict[str, TripletRecord], dict[str, str]]:
    """Read the triplet records of several trainings.

    Args:
        paths: by training, the path of its record in the store.
        fetch: makes a file of this machine of such a path.

    Returns:
        The records by training, and why the others cannot be read.
    """

    def read(path: str) -> TripletRecord | str:
        try:
            return parse_record(fetch(path).read_bytes())
        except (OSError, ValueError) as error:
            return f"{path} cannot be read: {str(error).splitlines()[0][:200]}"

    with ThreadPoolExecutor(_THREADS) as pool:
        answers = dict(zip(paths, pool.map(read, paths.values()), strict=True))
    records = {key: answer for key, answer in answers.items() if isinstance(answer, TripletRecord)}
    return records, {key: answer for key, answer in answers.items() if isinstance(answer, str)}
