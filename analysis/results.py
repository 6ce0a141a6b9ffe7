"""Reads a sweep's results table, from which everything in a report is computed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from goal_sweep.analysis.blocks import OF_EACH, BlockKey, Objective
from goal_sweep.analysis.wording import point_values
from goal_sweep.sweeps.axes import ANY, VARIANT
from goal_sweep.sweeps.results import DEFAULT, EPOCHS, METRICS, SETTING, TUNED, Header, ResultsError
from goal_sweep.sweeps.tuning.trail import Trail

_TESTS = [metric.test for metric in METRICS.values()]
UNUSABLE = "unusable"
"""The state of a training that is done without a finite number for each test metric."""


@dataclass(frozen=True, kw_only=True)
class SweepResults:
    """Everything that a results table says of a sweep."""

    header: Header
    runs: pd.DataFrame
    """A row for each training that reports: the table's columns but for those by epoch (missing text is empty, missing
    numbers are NaN), and ``state``, its status or `UNUSABLE`. The index is the row's number in the table."""
    candidates: pd.DataFrame
    """The same for the trainings that a search tried, which are in no block."""
    table: pa.Table = field(repr=False)
    folder: Path | None = None
    """The store, where it is a folder of this machine; to it lead the table's paths."""

    @property
    def counted(self) -> pd.DataFrame:
        """The trainings that report and are done, with every number."""
        return self.runs[self.runs["state"] == "done"]

    @cached_property
    def main_grid(self) -> str:
        """The grid of which statistics over several blocks speak: the tuned one once it has a number; empty if none."""
        if not self.header.grids:
            return ""
        return TUNED if in_grid(self.counted, TUNED).any() else DEFAULT

    @property
    def is_searching(self) -> bool:
        """Whether the sweep tunes and has not chosen yet."""
        return bool(self.header.grids) and not self.header.trails

    @property
    def tunes_variant(self) -> bool:
        """Whether the variant is among what was chosen, so that a tuned grid has objectives of several."""
        return self.header.tune is not None and "objectives.variant" in self.header.tune.space

    def trails_of(self, key: BlockKey) -> dict[Objective, Trail]:
        """The trails of a block's backbone, by objective."""
        return {trail.objective: trail for trail in self.header.trails if trail.backbone == key.backbone}

    def settings(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The settings of some trainings as text, with the same index; those that a training lacks are empty."""
        names = [name for name in runs.columns if str(name).startswith(SETTING)]
        return runs[names].rename(columns=lambda name: name.removeprefix(SETTING))

    def of_block(self, runs: pd.DataFrame, key: BlockKey) -> pd.DataFrame:
        """Those of some trainings that belong to a block."""
        names = ["dataset", "framework", "backbone", "stage", "data_fingerprint"]
        if VARIANT.partition(".")[2] not in point_values(key.point) and key.variant != OF_EACH:
            names.append("variant")
        is_here = pd.Series(True, index=runs.index)
        for name in names:
            is_here &= runs[name] == getattr(key, name)
        runs = runs[is_here]
        if key.grid:
            runs = runs[in_grid(runs, key.grid)]
        return runs[is_at(runs, key.point)] if key.point else runs

    def at_first_point(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Those of some trainings that are at the first value of every axis and in the main grid.

        Statistics over several blocks use them alone, because blocks of other points and grids share trainings.
        """
        if self.main_grid:
            runs = runs[in_grid(runs, self.main_grid)]
            if self.main_grid == TUNED and self.tunes_variant:
                runs = runs.assign(variant=OF_EACH)
        parts = [
            here[is_at(here, points[0])] if points[0] else here
            for stage, points in self.header.points.items()
            for here in [runs[runs["stage"] == stage]]
        ]
        return pd.concat(parts).sort_index()

    def epochs(self, runs: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
        """The epochs of some trainings: a row for each, with ``training``, ``epoch`` and the metrics (NaN if missing).

        Args:
            runs: rows of `runs`.
            metrics: their names, such as ``val/rsum``.
        """
        known = [name for name in metrics if EPOCHS + name in self.table.column_names]
        if f"{EPOCHS}epoch" not in self.table.column_names:
            return pd.DataFrame({name: pd.Series(dtype=float) for name in ("training", "epoch", *metrics)})
        rows = pa.array(runs.index, pa.int64())  # typed, for an empty one
        lists = self.table.select([EPOCHS + name for name in ("epoch", *known)]).take(rows).to_pandas()
        counts = [0 if epochs is None else len(epochs) for epochs in lists[f"{EPOCHS}epoch"]]
        columns: dict[str, Any] = {"training": np.repeat(runs["training"].to_numpy(), counts)}
        for name in ("epoch", *known):
            values = zip(lists[EPOCHS + name], counts, strict=True)
            each = [np.full(count, np.nan) if own is None else own for own, count in values]
            columns[name] = np.concatenate(each) if each else np.empty(0)
        return pd.DataFrame(columns).reindex(columns=["training", "epoch", *metrics])


def read_results(content: bytes, source: str, folder: Path | None = None) -> SweepResults:
    """Read a results table.

    Args:
        content: the Parquet file.
        source: where it comes from, for messages.
        folder: see `SweepResults.folder`.

    Raises:
        ResultsError: it is damaged, or of a format that this goal-sweep does not read.
    """
    try:
        table = pq.read_table(io.BytesIO(content))
        header = Header.parse((table.schema.metadata or {}).get(b"goal-sweep", b""))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ResultsError(f"{source} is not a results table: {str(error).splitlines()[0]}") from error
    plain = [name for name in table.column_names if not name.startswith(EPOCHS)]
    columns = dict(table.select(plain).to_pandas().items())
    for metric in METRICS.values():
        for name in (metric.test, metric.val):
            columns[name] = columns[name].astype(float) if name in columns else pd.Series(np.nan, range(len(table)))
    for name in plain:
        if pa.types.is_string(table.schema.field(name).type):
            columns[name] = columns[name].astype(object).fillna("")
    frame = pd.DataFrame(columns)  # in one piece, because there may be hundreds of settings
    reports, is_finite = frame["role"] == "report", np.isfinite(frame[_TESTS].to_numpy(float)).all(axis=1)
    unusable = (frame["status"] == "done") & reports & ~is_finite
    frame["state"] = frame["status"].where(~unusable, UNUSABLE)
    return SweepResults(
        header=header, runs=frame[reports].copy(), candidates=frame[~reports].copy(), table=table, folder=folder
    )


def in_grid(runs: pd.DataFrame, grid: str) -> pd.Series[bool]:
    """Which of some trainings belong to a grid of a tuned sweep."""
    return pd.Series([grid in text.split(",") for text in runs["grid"]], index=runs.index, dtype=bool)


def is_at(runs: pd.DataFrame, point: str) -> pd.Series[bool]:
    """Which of some trainings belong to a point: those whose values are its values, or do not matter to them."""
    wanted = point_values(point)
    by_place = {
        place: all(value in (ANY, wanted.get(name)) for name, value in point_values(place).items())
        for place in runs["point"].unique()
    }
    return runs["point"].map(by_place).astype(bool)
