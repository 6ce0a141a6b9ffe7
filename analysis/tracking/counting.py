"""Which runs count: those that the sweep asks for, and that are done, complete and the first of their stage key.

What the sweep asks for comes first. A sweep file is edited and launched again, and the experiment keeps the runs of
its earlier settings, data, seeds and objectives. Whether such a run is done or failed, it is not a result of the sweep
as it is now, nor missing from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import BLOCK_COLUMNS

_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a sweep asks for."""

    seeds: tuple[int, ...]
    objectives: Mapping[tuple[str, str], str]
    """``(pair, triplet)`` to the key of its parameters, which is empty when the parent run does not say."""
    stages: tuple[str, ...]
    settings: frozenset[str]
    """Settings keys; none when the parent run does not say."""
    data_fingerprint: str
    """Of the sweep's data; empty when the parent run does not say."""


def judge(runs: pd.DataFrame, asked: Asked) -> pd.DataFrame:
    """Decide which runs count.

    Args:
        runs: oldest first, so that the older of two equal runs counts; columns as in `SweepRuns.runs`, and ``lacking``
            (what its tags do not say).
        asked: what the sweep asks for.

    Returns:
        The runs with the columns ``placed``, ``asked`` and ``excluded`` in place of ``lacking``.
    """
    rows = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
    reasons = [f"no {row['lacking']}" if row["lacking"] else _not_asked(row, asked) for row in rows]
    if not asked.data_fingerprint:
        reasons = _without_older_data(rows, reasons)
    excluded = [reason or _unfit(row) for row, reason in zip(rows, reasons, strict=True)]
    return runs.drop(columns="lacking").assign(
        placed=runs["lacking"] == "", asked=[not reason for reason in reasons], excluded=_once(rows, reasons, excluded)
    )


def _not_asked(row: _Row, asked: Asked) -> str:
    """Why the sweep does not ask for a run, or an empty string; what either of them does not say is no reason."""
    objective = (row["pair"], row["triplet"])
    if row["seed"] not in asked.seeds:
        return f"seed {row['seed']} is not asked for"
    if objective not in asked.objectives:
        return f"objective {row['pair']}/{row['triplet']} is not asked for"
    if row["stage"] not in asked.stages:
        return f"stage {row['stage']} is not asked for"
    if asked.settings and row["settings_key"] and row["settings_key"] not in asked.settings:
        return f"trained with other settings than those asked for ({schema.TAG_SETTINGS_KEY} {row['settings_key']})"
    if asked.objectives[objective] and row["objective_key"] not in ("", asked.objectives[objective]):
        return f"trained with other parameters of the objective ({schema.TAG_OBJECTIVE_KEY} {row['objective_key']})"
    if asked.data_fingerprint not in ("", row["data_fingerprint"]):
        return f"trained on other data than the sweep's ({schema.TAG_DATA_FINGERPRINT} {row['data_fingerprint']})"
    return ""


def _without_older_data(rows: list[dict[str, Any]], reasons: list[str]) -> list[str]:
    """Also leave out unfinished runs on data other than the newest run's, which no launch will finish.

    A launch reads one set of data, so the newest run shows which one the sweep has now.
    """
    newest = [row["data_fingerprint"] for row, reason in zip(rows, reasons, strict=True) if not reason][-1:]
    return [
        f"{row['status']} on other data than newer runs ({schema.TAG_DATA_FINGERPRINT} {row['data_fingerprint']})"
        if not reason and row["status"] != schema.STATUS_DONE and row["data_fingerprint"] not in newest
        else reason
        for row, reason in zip(rows, reasons, strict=True)
    ]


def _unfit(row: _Row) -> str:
    """Why a run that is asked for has no numbers to count, or an empty string."""
    if row["status"] not in schema.STATUSES:
        return f"unknown status {row['status']!r}"
    if row["status"] != schema.STATUS_DONE:
        return str(row["status"])
    bad = [name for name in schema.TEST_METRICS if not math.isfinite(row.get(name, math.nan))]
    if bad:
        return f"done, but without a finite {', '.join(bad)}"
    # MLflow's databases keep infinity as the largest number there is.
    odd = [metric.test for metric in schema.METRICS.values() if not 0 <= row[metric.test] <= metric.maximum]
    return f"done, but out of range: {', '.join(odd)}" if odd else ""


def _once(rows: list[dict[str, Any]], reasons: list[str], excluded: list[str]) -> list[str]:
    """Let one run of each training count, and say of the others which run does."""
    first_by_key: dict[str, _Row] = {}
    first_by_training: dict[tuple[Any, ...], _Row] = {}
    found = []
    trainings = [tuple(row[column] for column in (*BLOCK_COLUMNS, "pair", "triplet", "seed")) for row in rows]
    for row, training, verdict in zip(rows, trainings, excluded, strict=True):
        key, other = row["stage_key"], first_by_training.get(training)
        if verdict:
            found.append(verdict)
        elif key in first_by_key:
            found.append(_duplicate(row, first_by_key[key]))
        elif other is not None:
            found.append(
                f"the same training as run {other['run_id']}, with other settings (key {key}, not {other['stage_key']})"
            )
        else:
            first_by_key[key] = first_by_training[training] = row
            found.append("")
    return [
        f"{verdict}; run {first_by_training[training]['run_id']} has done it since"
        if not reason and verdict in schema.STATUSES and training in first_by_training
        else verdict
        for verdict, training, reason in zip(found, trainings, reasons, strict=True)
    ]


def _duplicate(row: _Row, first: _Row) -> str:
    differ = [name for name in schema.TEST_METRICS if row[name] != first[name]]
    numbers = f"with other numbers ({', '.join(differ)})" if differ else "with the same numbers"
    return f"duplicate of run {first['run_id']}, {numbers}"
