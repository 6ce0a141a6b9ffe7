"""The row of a training: what the sweep says of it, and what the store has of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.atomic import DamagedError, StorageError
from goal_sweep.goal_core.basics.errors import printable
from goal_sweep.goal_core.checkpoints.names import RANKS
from goal_sweep.goal_core.evaluation.metrics import TEST, VAL
from goal_sweep.goal_core.training import below_warmup, weak_objective
from goal_sweep.runners.store import BEST, LOG, Attempt, Store, TrainingStatus
from goal_sweep.sweeps import Training
from goal_sweep.sweeps.results import COLUMNS, EPOCHS, SETTING

_NAMES = list(COLUMNS)
STORED = _NAMES[_NAMES.index("status") :]
"""The fixed columns that come from the store. Those before them follow from the sweep."""
DIFF_DIGITS = 12
"""Hex digits of the digest of uncommitted changes, enough for people to compare."""


def asked_row(training: Training) -> dict[str, Any]:
    """The columns that follow from the sweep: which training it is, where it stands, and its settings."""
    cell = training.cell
    return {
        "training": training.key,
        "name": training.name,
        "cell": cell.id,
        "stage": training.stage.name,
        "dataset": cell.data.name,
        "framework": cell.model.framework,
        "backbone": cell.model.backbone.name,
        "pair": cell.objective.pair,
        "triplet": cell.objective.triplet,
        "variant": cell.objective.variant,
        "seed": cell.seed,
        "configuration": training.place,
        "grid": ",".join(training.grids),
        "role": "report" if training.number is None else "candidate",
        "candidate": training.number,
        "data_fingerprint": cell.data_fingerprint,
        **{SETTING + name: text for name, text in training.settings.items()},
    }


def stored_row(store: Store, training: Training, status: TrainingStatus) -> dict[str, Any]:
    """The columns that come from the store; without those of a damaged file, which the reason names."""
    folder, result, best = store.folder(training), status.result, status.result.get("best_epoch")
    attempts: list[Attempt] = []
    records: list[dict[str, Any]] = []
    ranks, reason = None, status.reason
    try:
        with suppress(StorageError):
            attempts = folder.attempts.all()
            records = folder.records(result)
            ranks = folder.stated(RANKS, result)
    except DamagedError as error:
        reason = reason or str(error)
    newest = attempts[-1] if attempts else Attempt(n=1, launch="", started=0.0)
    ended = result.get("finished", newest.ended)
    row: dict[str, Any] = {
        "status": status.state,
        "reason": printable(reason),
        "attempts": status.attempts,
        "best_epoch": best,
        "seconds": result.get("seconds"),
        "step_ms": sum(steps) / len(steps) if (steps := _values(records, "time/step_ms")) else None,
        "val_s": sum(passes) if (passes := _values(records, "time/val_s")) else None,
        "started": attempts[0].started if attempts else None,
        "ended": None if status.state == "running" else ended,
        "host": printable(newest.host),
        "device": printable(newest.device),
        "git_commit": newest.git_commit,
        "git_diff": newest.git_diff_sha256[:DIFF_DIGITS],
        "stacked": result.get("stacked"),
        "below_warmup": "",
        "weak_objective": "",
        "checkpoint": _path(folder.place(BEST, result)) if result else "",
        "log": _path(folder.folder / LOG) if status.attempts else "",
        "ranks": ranks,
    }
    if best is not None:
        row["below_warmup"] = below_warmup(records, training.stage.warmup_epochs, best)
        row["weak_objective"] = weak_objective(records, training.stage.warmup_epochs)
        row |= {key: value for key, value in result["metrics"].items() if key.startswith((VAL, TEST))}
        selected: Mapping[str, float] = next((one["metrics"] for one in records if one["epoch"] == best), {})
        row |= {key: value for key, value in selected.items() if key.startswith(VAL)}
    return row | _epochs(records)


def training_row(store: Store, training: Training, status: TrainingStatus) -> dict[str, Any]:
    """All columns of one training."""
    return asked_row(training) | stored_row(store, training, status)


def _epochs(records: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    names = dict.fromkeys(name for record in records for name in record["metrics"])
    columns = {EPOCHS + name: [record["metrics"].get(name, math.nan) for record in records] for name in names}
    if records:
        columns |= {EPOCHS + "epoch": [float(record["epoch"]) for record in records]}
        columns |= {EPOCHS + "time": [float(record.get("time", math.nan)) for record in records]}
    return columns


def _values(records: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [record["metrics"][name] for record in records if name in record["metrics"]]


def _path(place: Path) -> str:
    """The path of a file in the store, with forward slashes."""
    return "/".join(["cells", *place.parts[-3:]])
