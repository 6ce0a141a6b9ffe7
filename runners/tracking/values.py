"""What MLflow shows of a training: tags, parameters and metrics, from its row in the results table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from goal_sweep.runners.tracking import schema as names
from goal_sweep.sweeps.results import EPOCHS, SETTING, TEST, VAL

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
    tags = {tag: str(row.get(column) or "")[:_MAX_TAG] for tag, column in names.COLUMNS_OF_TAGS.items()}
    if row.get("git_diff"):
        tags["goal.git_commit"] += f", modified ({row['git_diff']})"
    return {tag: text for tag, text in tags.items() if text} | names.SOURCE


def name_of(row: Row) -> str:
    """The name of a training's run: the seed first, because MLflow's lists cut a name where it ends."""
    seed = f"seed {row['seed']}"
    return f"{seed} {row['name'].replace(f' {seed}', '', 1)}"


def params_of(row: Row) -> dict[str, str]:
    """The parameters of a training's run: its objective, and the settings that its key hashes, which never change."""
    settings = ((name.removeprefix(SETTING), text) for name, text in row.items() if name.startswith(SETTING))
    return {names.OBJECTIVE: f"{row['pair']}/{row['triplet']}"} | {name: text for name, text in settings if text}


def final_of(row: Row) -> LoggedStep:
    """The metrics of a finished training on the test split, and those of the selected epoch on the val split."""
    test = {name: value for name, value in row.items() if name.startswith(TEST)}
    val = {names.SELECTED + name.removeprefix(VAL): value for name, value in row.items() if name.startswith(VAL)}
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
