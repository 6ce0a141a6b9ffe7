"""Reads the results tables of a sweep, from which everything in a report is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from goal_sweep.analysis.blocks import BLOCK_COLUMNS, OF_EACH, BlockKey, Objective
from goal_sweep.analysis.wording import configuration_values, objectives_text
from goal_sweep.goal_core.evaluation.metrics import METRICS, RSUM
from goal_sweep.goal_core.objectives.variants import LOSS
from goal_sweep.sweeps.axes import ANY, VARIANT
from goal_sweep.sweeps.results import DEFAULT, EPOCHS, SETTING, TUNED, Header, ResultsError

_TESTS = [metric.test for metric in METRICS.values()]
_NUMBERS = [*_TESTS, *(metric.val for metric in METRICS.values())]
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
    """With the column ``store``: the folder on this machine to which a row's paths lead; empty without one."""

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
        return bool(self.header.grids) and not self.header.studies

    def settings(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The settings of some trainings as text, with the same index; those that a training lacks are empty."""
        names = [name for name in runs.columns if str(name).startswith(SETTING)]
        return runs[names].rename(columns=lambda name: name.removeprefix(SETTING))

    def of_block(self, runs: pd.DataFrame, key: BlockKey) -> pd.DataFrame:
        """Those of some trainings that belong to a block."""
        names = ["dataset", "framework", "backbone", "stage", "data_fingerprint"]
        if VARIANT.partition(".")[2] not in configuration_values(key.configuration) and key.variant != OF_EACH:
            names.append("variant")
        runs = runs[(runs[names] == [getattr(key, name) for name in names]).all(axis=1)]
        if key.grid:
            runs = runs[in_grid(runs, key.grid)]
        return runs[is_at(runs, key.configuration)] if key.configuration else runs

    def epochs(self, runs: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
        """A row for each epoch of some `runs`, with ``training``, ``epoch`` and the metrics (NaN if missing)."""
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


def sweep_results(header: Header, table: pa.Table, folder: Path | None = None) -> SweepResults:
    """What a results table says of its sweep, in the store ``folder`` where that is one of this machine."""
    table = table.append_column("store", pa.array([str(folder or "")] * len(table), pa.string()))
    plain = [name for name in table.column_names if not name.startswith(EPOCHS)]
    columns = dict(table.select(plain).to_pandas().items())
    for name in _NUMBERS:
        columns[name] = columns[name].astype(float) if name in columns else pd.Series(np.nan, range(len(table)))
    for name in plain:
        if pa.types.is_string(table.schema.field(name).type):
            columns[name] = columns[name].astype(object).fillna("")
    frame = pd.DataFrame(columns)  # in one piece, because there may be hundreds of settings
    reports, is_finite = frame["role"] == "report", np.isfinite(frame[_TESTS].to_numpy(float)).all(axis=1)
    unusable = (frame["status"] == "done") & reports & ~is_finite
    frame["state"] = frame["status"].where(~unusable, UNUSABLE)
    return SweepResults(header=header, runs=frame[reports].copy(), candidates=frame[~reports].copy(), table=table)


def objective_named(header: Header, text: str) -> Objective:
    """One of a sweep's objectives, such as ``con/nca`` or the baseline ``infonce``; else a `ResultsError`."""
    pair, _, triplet = text.partition("/")
    if (pair, triplet or LOSS) not in header.objectives:
        raise ResultsError(f"{header.sweep} has no objective {text!r}; it has {objectives_text(header.objectives)}")
    return pair, triplet or LOSS


def best_runs(results: SweepResults, objective: str = "") -> pd.DataFrame:
    """The trainings of a sweep's best model on val: a row for each seed, that of the highest val rsum first.

    The best is the objective with the block and settings whose seeds have the highest mean val rsum, in the last stage
    that has a finished training. Nothing is chosen on the test split.

    Args:
        objective: only this one, such as ``con/nca`` or the baseline ``infonce``.

    Raises:
        ResultsError: the sweep lacks the objective, or no training of it is done that has val's recall.
    """
    runs, header = results.counted[results.counted[RSUM.val].notna()], results.header
    if objective:
        pair, triplet = objective_named(header, objective)
        runs = runs[(runs["pair"] == pair) & (runs["triplet"] == triplet)]
    if runs.empty:
        of = f" with {objective}" if objective else ""
        raise ResultsError(f"no model of {header.sweep}{of} is finished; goal-sweep launch trains it")
    runs = runs[runs["stage"] == max(runs["stage"], key=header.stages.index)]
    groups = runs.groupby([*BLOCK_COLUMNS, "pair", "triplet", "configuration", "grid"])
    best: pd.DataFrame = groups.get_group(groups[RSUM.val].mean().idxmax())
    return best.sort_values([RSUM.val, "seed"], ascending=[False, True])


def in_grid(runs: pd.DataFrame, grid: str) -> pd.Series[bool]:
    """Which of some trainings belong to a grid of a tuned sweep."""
    return pd.Series([grid in text.split(",") for text in runs["grid"]], index=runs.index, dtype=bool)


def is_at(runs: pd.DataFrame, configuration: str) -> pd.Series[bool]:
    """Which trainings belong to a configuration: those whose values are its values, or do not matter to them."""
    wanted = configuration_values(configuration)
    by_place = {
        place: all(value in (ANY, wanted.get(name)) for name, value in configuration_values(place).items())
        for place in runs["configuration"].unique()
    }
    return runs["configuration"].map(by_place).astype(bool)


def with_numbers(runs: pd.DataFrame) -> pd.DataFrame:
    """Some trainings with the settings as numbers of which all that are not empty are numbers; empty ones are NaN."""
    texts = {name: own for name, own in runs.items() if str(name).startswith(SETTING)}
    numbers = {name: pd.to_numeric(own.replace("", None), errors="coerce") for name, own in texts.items()}
    known = [name for name, own in numbers.items() if own.notna().any() and own.isna().equals(texts[name] == "")]
    return runs.assign(**{str(name): numbers[name] for name in known})
