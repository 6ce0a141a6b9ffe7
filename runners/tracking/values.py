"""What MLflow shows: the names of tags and metrics, and what a training has of them, by its row in the results table.

::

    experiment                = the sweep's name
    parent run (one)            goal.role = sweep; its artifacts are the results table and the report
    child run per training      found again by goal.stage_key; goal.role = report, or candidate for one of a search
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from goal_sweep.goal_core.evaluation.metrics import TEST, VAL
from goal_sweep.sweeps.results import EPOCHS, SETTING

PARENT_RUN: Final = "mlflow.parentRunId"
SOURCE: Final = {"mlflow.source.name": "goal-sweep launch", "mlflow.source.type": "LOCAL"}
"""MLflow's own tags, which its page shows as "Source"."""
KIND: Final = {"mlflow.experimentKind": "custom_model_development"}
"""MLflow's tag of an experiment whose page shows runs; it shows others as traces of language models."""

SWEEP: Final = "goal.sweep"
"""The sweep's name, on its experiment and its parent run."""
ROLE: Final = "goal.role"
ROLE_SWEEP: Final = "sweep"
FORMER: Final = "former"
"""The role of a run whose training the sweep no longer asks for, because a setting, the data or a choice changed."""
STAGE_KEY: Final = "goal.stage_key"
STATUS: Final = "goal.status"
OBJECTIVE: Final = "objective"
"""The parameter ``pair/triplet``, by which runs can be grouped."""

_TAGGED = (
    *("cell", "stage", "pair", "triplet", "seed", "backbone", "framework", "dataset", "status", "git_commit"),
    *("data_fingerprint", "role", "variant", "configuration", "grid", "reason", "checkpoint"),
)
COLUMNS_OF_TAGS: Final[Mapping[str, str]] = {f"goal.{name}": name for name in _TAGGED} | {STAGE_KEY: "training"}
"""The tags of a training's run, each with its column of the results table; those that are empty are left out."""

SELECTED: Final = "selected/val_"
"""Prefix of the selected epoch's metrics on the val split, so that ranking runs by val and reading their test metrics
speaks of the same weights."""
_MAX_TAG = 4000
_TIMES = (f"{EPOCHS}epoch", f"{EPOCHS}time")
Row = Mapping[str, Any]
"""A row of the results table; of a training that only begins, without the columns that come from the store."""


class LoggedStep(NamedTuple):
    """The metrics of one step."""

    step: int
    metrics: Mapping[str, float]
    """Finite ones only: MLflow would store an infinity as 1.8e308, which looks like any other number in a table."""
    time_ms: int
    """Milliseconds since 1970. A step always has the same time, so the database itself drops a repeated one."""


def tags_of(row: Row) -> dict[str, str]:
    """The tags of a training's run."""
    tags = {tag: str(row.get(column) or "")[:_MAX_TAG] for tag, column in COLUMNS_OF_TAGS.items()}
    if row.get("git_diff"):
        tags["goal.git_commit"] += f", modified ({row['git_diff']})"
    return {tag: text for tag, text in tags.items() if text} | SOURCE


def name_of(row: Row) -> str:
    """The name of a training's run: the seed first, because MLflow's lists cut a name where it ends."""
    seed = f"seed {row['seed']}"
    return f"{seed} {row['name'].replace(f' {seed}', '', 1)}"


def params_of(row: Row) -> dict[str, str]:
    """The parameters of a training's run: its objective, and the settings that its key hashes, which never change."""
    settings = ((name.removeprefix(SETTING), text) for name, text in row.items() if name.startswith(SETTING))
    return {OBJECTIVE: f"{row['pair']}/{row['triplet']}"} | {name: text for name, text in settings if text}


def final_of(row: Row) -> LoggedStep:
    """The metrics of a finished training on the test split, and those of the selected epoch on the val split."""
    test = {name: value for name, value in row.items() if name.startswith(TEST)}
    val = {SELECTED + name.removeprefix(VAL): value for name, value in row.items() if name.startswith(VAL)}
    return logged(int(row["best_epoch"]), {**test, **val}, row["ended"])


def epochs_of(row: Row) -> Iterator[LoggedStep]:
    """The metrics of each recorded epoch."""
    epochs = row.get(_TIMES[0]) or []
    series = {
        name.removeprefix(EPOCHS): values
        for name, values in row.items()
        if name.startswith(EPOCHS) and name not in _TIMES and values
    }
    for number, epoch in enumerate(epochs):
        metrics = {name: values[number] for name, values in series.items()}
        yield logged(int(epoch), metrics, row[_TIMES[1]][number])


def logged(step: int, metrics: Mapping[str, float | None], time: float | None) -> LoggedStep:
    """The metrics of a step at a time, in seconds since 1970."""
    finite = {name: value for name, value in metrics.items() if value is not None and math.isfinite(value)}
    return LoggedStep(step, finite, int((time if time and math.isfinite(time) else 0) * 1000))
