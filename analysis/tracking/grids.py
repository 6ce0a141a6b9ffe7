"""Which grids a run of a tuned sweep belongs to: what its tag says, as far as its values are those that were chosen.

A choice can change, for a larger budget finds better candidates. Then runs of the earlier choice stay in tracking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import Objective
from analysis.tuning import Dimension, Tuning, Value, is_number


def placed(runs: pd.DataFrame, settings: pd.DataFrame, tuning: Tuning | None) -> pd.DataFrame:
    """The runs of a tuned sweep with their grids.

    Args:
        runs: columns as in `SweepRuns.runs`; ``grid`` is the tag.
        settings: the runs' parameters, indexed by ``run_id``.
        tuning: what was chosen; None where nothing was chosen yet.

    Returns:
        The runs, with ``grid`` as it is now (a run without the tag is of the default grid), and ``misplaced``: why a
        run belongs to none, or an empty string.
    """
    rows = [{str(name): value for name, value in row.items()} for row in runs.to_dict("records")]
    found = [_place(row, settings.loc[row["run_id"]].to_dict(), tuning) for row in rows]
    grids, reasons = ([pair[side] for pair in found] for side in (0, 1))
    index = runs.index
    return runs.assign(
        grid=pd.Series(grids, index=index, dtype=object), misplaced=pd.Series(reasons, index=index, dtype=object)
    )


def _place(row: Mapping[str, Any], settings: Mapping[Any, str], tuning: Tuning | None) -> tuple[str, str]:
    stated = row["grid"].split(",") if row["grid"] else [schema.GRID_DEFAULT]
    if stated == [schema.GRID_FORMER]:
        return row["grid"], f"of an earlier choice ({schema.TAG_GRID} {schema.GRID_FORMER})"
    if unknown := [name for name in stated if name not in schema.GRIDS]:
        return row["grid"], f"unknown grid {', '.join(unknown)!r}"
    if schema.GRID_DEFAULT in stated and tuning and tuning.chose_default(*_objective(row)):
        stated = list(schema.GRIDS)
    reason = _unchosen(row, settings, tuning) if schema.GRID_TUNED in stated else ""
    if reason and schema.GRID_DEFAULT in stated:
        return schema.GRID_DEFAULT, ""
    return ",".join(name for name in schema.GRIDS if name in stated), reason


def _objective(row: Mapping[str, Any]) -> tuple[str, str, str, Objective]:
    return row["dataset"], row["framework"], row["backbone"], (row["pair"], row["triplet"])


def _unchosen(row: Mapping[str, Any], settings: Mapping[Any, str], tuning: Tuning | None) -> str:
    """Why a run is not of the tuned grid, or an empty string. A value that it does not record is not a reason."""
    if tuning is None:
        return f"of the tuned grid, but the sweep has no {schema.TUNING_ARTIFACT}"
    trail = tuning.trail(*_objective(row))
    if trail is None or trail.choice is None:
        return "of the tuned grid, but nothing was chosen for its objective"
    recorded = {**settings, "variant": row["variant"]}
    differing = [
        f"{name} {text}, not {value}"
        for name, value in trail.choice.values.items()
        for text in [_recorded(recorded, tuning.dimensions[name])]
        if text and not _same(text, value)
    ]
    return f"trained with other values than those chosen ({'; '.join(differing)})" if differing else ""


def _recorded(recorded: Mapping[Any, str], dimension: Dimension) -> str:
    value = recorded.get(dimension.parameter, "")
    return value if isinstance(value, str) else ""


def _same(text: str, value: Value) -> bool:
    """Whether a parameter states a value. MLflow has texts only; a tuple and a list are the same."""
    if is_number(value):
        try:
            return abs(float(text) - float(value)) <= 1e-9 * max(abs(float(value)), 1e-300)
        except ValueError:
            return False
    return _plain(text) == _plain(str(value))


def _plain(text: str) -> list[str]:
    return [word for word in text.strip("()[]").replace(" ", "").split(",") if word]
