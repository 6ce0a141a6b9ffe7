"""Which runs count: those that are done, complete, asked for by the sweep, and the first of their stage key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import BLOCK_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a sweep asks for."""

    seeds: tuple[int, ...]
    objectives: Mapping[tuple[str, str], str]
    """``(pair, triplet)`` to the key of its parameters, which is empty when the parent run does not say."""
    settings: frozenset[str]
    """Settings keys; none when the parent run does not say."""


def verdicts(runs: pd.DataFrame, asked: Asked) -> list[str]:
    """Why each run does not count, or an empty string.

    Args:
        runs: oldest first, so that the older of two equal runs counts; columns as in `SweepRuns.runs`, and ``lacking``
            (what its tags do not say).
        asked: what the sweep asks for.
    """
    first_by_key: dict[str, dict[str, Any]] = {}
    first_by_cell: dict[tuple[Any, ...], dict[str, Any]] = {}
    found = []
    for record in runs.to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        verdict = _unfit(row, asked)
        if not verdict:
            cell = tuple(row[column] for column in (*BLOCK_COLUMNS, "pair", "triplet", "seed"))
            key = row["stage_key"]
            if key in first_by_key:
                verdict = _duplicate(row, first_by_key[key])
            elif cell in first_by_cell:
                other = first_by_cell[cell]
                verdict = f"the place of run {other['run_id']}, by other settings (key {key}, not {other['stage_key']})"
            else:
                first_by_key[key] = first_by_cell[cell] = row
        found.append(verdict)
    return found


def _unfit(row: dict[str, Any], asked: Asked) -> str:
    if row["lacking"]:
        return f"no {row['lacking']}"
    if row["status"] not in schema.STATUSES:
        return f"unknown status {row['status']!r}"
    if row["status"] != schema.STATUS_DONE:
        return str(row["status"])
    bad = [name for name in schema.TEST_METRICS if not math.isfinite(row.get(name, math.nan))]
    if bad:
        return f"done, but without a finite {', '.join(bad)}"
    # MLflow's databases keep infinity as the largest number there is.
    odd = [metric.test for metric in schema.METRICS.values() if not 0 <= row[metric.test] <= metric.maximum]
    if odd:
        return f"done, but out of range: {', '.join(odd)}"
    if row["seed"] not in asked.seeds:
        return f"seed {row['seed']} is not asked for"
    if (row["pair"], row["triplet"]) not in asked.objectives:
        return f"objective {row['pair']}/{row['triplet']} is not asked for"
    return _other_settings(row, asked)


def _other_settings(row: dict[str, Any], asked: Asked) -> str:
    """An earlier version of the sweep file leaves runs of its settings in the experiment; they are not averaged in."""
    if asked.settings and row["settings_key"] and row["settings_key"] not in asked.settings:
        return f"trained by other settings than those asked for ({schema.TAG_SETTINGS_KEY} {row['settings_key']})"
    key = asked.objectives[row["pair"], row["triplet"]]
    if key and row["objective_key"] and row["objective_key"] != key:
        return f"by other parameters of the objective ({schema.TAG_OBJECTIVE_KEY} {row['objective_key']})"
    return ""


def _duplicate(row: dict[str, Any], first: dict[str, Any]) -> str:
    differ = [name for name in schema.TEST_METRICS if row[name] != first[name]]
    numbers = f"with other numbers ({', '.join(differ)})" if differ else "with the same numbers"
    return f"duplicate of run {first['run_id']}, {numbers}"
