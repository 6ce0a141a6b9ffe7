"""Which runs count: those that the sweep requests and that are done, complete and the first of their stage key.

The request is checked first. When a sweep file is edited and launched again, the experiment keeps the runs of its
earlier settings, data, seeds and objectives. Whether such a run is done or failed, it is neither a result of the
present sweep nor missing from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import run_schema as schema
from analysis.axes import Axis, axes_of, misplaced
from analysis.blocks import BLOCK_COLUMNS

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a sweep requests."""

    seeds: tuple[int, ...]
    objectives: Mapping[tuple[str, str], str]
    """``(pair, triplet)`` to the key of its parameters, which is empty when the parent run does not state it."""
    stages: tuple[str, ...]
    settings: frozenset[str]
    """Settings keys; none when the parent run does not state them."""
    data_fingerprint: str
    """Of the sweep's data; empty when the parent run does not state it."""
    axes: tuple[Axis, ...] = ()
    """The settings with several values."""
    is_tuned: bool = False
    """Whether the sweep has two grids, so that runs are compared within theirs."""
    objective_keys: frozenset[str] = frozenset()
    """The keys of all objectives, where axes or tuning give an objective several; otherwise empty."""

    def axes_of(self, stage: str) -> list[Axis]:
        """The axes that touch the trainings of a stage."""
        return axes_of(self.axes, self.stages[: self.stages.index(stage) + 1])


def mark_counted(runs: pd.DataFrame, requested: Requested) -> pd.DataFrame:
    """Decide which runs count.

    Args:
        runs: oldest first, so that the older of two equal runs counts; columns as in `SweepRuns.runs`,
            ``missing_tags`` (the required tags that the run lacks, comma-separated) and, of a tuned sweep,
            ``misplaced`` (see `analysis.tracking.grids`).
        requested: what the sweep requests.

    Returns:
        The runs with the columns ``has_all_tags``, ``requested`` and ``excluded`` in place of the last two.
    """
    rows = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
    reasons = [
        f"no {row['missing_tags']}" if row["missing_tags"] else _unrequested_reason(row, requested) for row in rows
    ]
    if not requested.data_fingerprint:
        reasons = _without_older_data(rows, reasons)
    excluded = [reason or _unusable_reason(row) for row, reason in zip(rows, reasons, strict=True)]
    columns = (*BLOCK_COLUMNS, *(("point",) if requested.axes else ()), "pair", "triplet", "seed")
    of_cells = [column for column in columns if column != "variant" or not requested.is_tuned]
    trainings = [
        [
            (*(row[column] for column in of_cells), grid)
            for grid in (row["grid"].split(",") if requested.is_tuned else ("",))
        ]
        for row in rows
    ]
    return runs.drop(columns=["missing_tags", "misplaced"], errors="ignore").assign(
        has_all_tags=runs["missing_tags"] == "",
        requested=pd.Series([not reason for reason in reasons], index=runs.index, dtype=bool),
        excluded=pd.Series(_mark_duplicates(rows, reasons, excluded, trainings), index=runs.index, dtype=object),
    )


def _unrequested_reason(row: _Row, requested: Requested) -> str:
    """Why the sweep does not request a run, or an empty string.

    A value that either side does not record is not a reason.
    """
    objective = (row["pair"], row["triplet"])
    if requested.is_tuned and row["misplaced"]:
        return str(row["misplaced"])
    if row["seed"] not in requested.seeds:
        return f"seed {row['seed']} is not in the sweep"
    if objective not in requested.objectives:
        return f"objective {row['pair']}/{row['triplet']} is not in the sweep"
    if row["stage"] not in requested.stages:
        return f"stage {row['stage']} is not in the sweep"
    if requested.settings and row["settings_key"] and row["settings_key"] not in requested.settings:
        return f"trained with other settings than the sweep's ({schema.TAG_SETTINGS_KEY} {row['settings_key']})"
    if requested.objectives[objective] and row["objective_key"] not in ("", requested.objectives[objective]):
        key = f"{schema.TAG_OBJECTIVE_KEY} {row['objective_key']}"
        return f"trained with other objective parameters than the sweep's ({key})"
    if requested.objective_keys and row["objective_key"] not in ("", *requested.objective_keys):
        key = f"{schema.TAG_OBJECTIVE_KEY} {row['objective_key']}"
        return f"trained with other objective parameters than the sweep's ({key})"
    if requested.axes and misplaced(row["point"], requested.axes_of(row["stage"])):
        place = row["point"] or "none"
        return f"its place among the sweep's axes is not up to date ({schema.TAG_POINT} {place}); see goal-sweep sync"
    if requested.data_fingerprint not in ("", row["data_fingerprint"]):
        return f"trained on other data than the sweep's ({schema.TAG_DATA_FINGERPRINT} {row['data_fingerprint']})"
    return ""


def _without_older_data(rows: list[dict[str, Any]], reasons: list[str]) -> list[str]:
    """Also exclude unfinished runs on older data; no launch will finish them.

    A launch reads one set of data, so the newest run shows which data the sweep uses now.
    """
    newest = [row["data_fingerprint"] for row, reason in zip(rows, reasons, strict=True) if not reason][-1:]
    return [
        f"{row['status']} on other data than newer runs ({schema.TAG_DATA_FINGERPRINT} {row['data_fingerprint']})"
        if not reason and row["status"] != schema.STATUS_DONE and row["data_fingerprint"] not in newest
        else reason
        for row, reason in zip(rows, reasons, strict=True)
    ]


def _unusable_reason(row: _Row) -> str:
    """Why a requested run has no usable numbers, or an empty string."""
    if row["status"] not in schema.STATUSES:
        return f"unknown status {row['status']!r}"
    if row["status"] != schema.STATUS_DONE:
        return str(row["status"])
    bad = [name for name in schema.TEST_METRICS if not math.isfinite(row.get(name, math.nan))]
    if bad:
        return f"done, but without a finite {', '.join(bad)}"
    # MLflow's databases store infinity as the largest finite number.
    out_of_range = [metric.test for metric in schema.METRICS.values() if not 0 <= row[metric.test] <= metric.maximum]
    return f"done, but out of range: {', '.join(out_of_range)}" if out_of_range else ""


def _mark_duplicates(
    rows: list[dict[str, Any]], reasons: list[str], excluded: list[str], trainings: list[list[tuple[Any, ...]]]
) -> list[str]:
    """Let one run of each training count; the reason of the others names that run.

    Args:
        rows: the runs.
        reasons: why the sweep does not request each.
        excluded: why each does not count, but for duplicates.
        trainings: what identifies the training of each run, once for each of its grids.
    """
    first_by_key: dict[str, _Row] = {}
    first_by_training: dict[tuple[Any, ...], _Row] = {}
    found = []
    for row, places, verdict in zip(rows, trainings, excluded, strict=True):
        key, other = row["stage_key"], next(filter(None, map(first_by_training.get, places)), None)
        if verdict:
            found.append(verdict)
        elif key in first_by_key:
            found.append(_duplicate(row, first_by_key[key]))
        elif other is not None:
            found.append(
                f"the same training as run {other['run_id']}, with other settings (key {key}, not {other['stage_key']})"
            )
        else:
            first_by_key[key] = row
            first_by_training |= dict.fromkeys(places, row)
            found.append("")
    since = [next(filter(None, map(first_by_training.get, places)), None) for places in trainings]
    return [
        f"{verdict}; run {other['run_id']} has done it since"
        if not reason and verdict in schema.STATUSES and other is not None
        else verdict
        for verdict, other, reason in zip(found, since, reasons, strict=True)
    ]


def _duplicate(row: _Row, first: _Row) -> str:
    differ = [name for name in schema.TEST_METRICS if row[name] != first[name]]
    numbers = f"with other numbers ({', '.join(differ)})" if differ else "with the same numbers"
    return f"duplicate of run {first['run_id']}, {numbers}"
