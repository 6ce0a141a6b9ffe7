"""What changed since earlier launches of a sweep: settings, data and code, by its results table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from runners.results.rows import DIFF_DIGITS, asked_row
from runners.results.table import ResultsTable, read_results
from runners.store import Store
from runners.store.records.provenance import gather
from sweeps import ResolvedSweep, Training
from sweeps.results import DEFAULT, SETTING

_PLACE = ("stage", "pair", "triplet", "seed", "backbone", "framework", "point")
"""Columns in which a training equals the earlier training that it replaces."""
_ASKED = (*_PLACE, "training", "role", "grid", "data_fingerprint", SETTING)
_MAX_SHOWN = 5


def edits_since(store: Store, sweep: ResolvedSweep, todo: Collection[Training]) -> list[str]:
    """What changed since an earlier launch of the sweep, a line each; read this before its table is brought up to date.

    Args:
        store: the store.
        sweep: the sweep.
        todo: its trainings that will be trained.
    """
    before = read_results(store, sweep.config.name)
    if before is None:
        return []
    code = describe_code(before, gather().git_diff_sha256[:DIFF_DIGITS]) if todo else []
    return [*describe_edits(before, sweep.trainings, todo), *describe_left_out(before, sweep.trainings), *code]


def describe_edits(before: ResultsTable, asked: Collection[Training], todo: Collection[Training]) -> list[str]:
    """Describe which trainings are new because a setting, the data or the code of a weight was edited.

    Args:
        before: the table as an earlier launch left it.
        asked: the sweep's trainings.
        todo: those of them that will be trained.

    Returns:
        A line for each set of edits, with the number of trainings that it affects.
    """
    rows = [row for row in before.rows(_ASKED) if _has_own_settings(row)]
    known, keys = {row["training"] for row in rows}, {training.key for training in asked}
    earlier = {tuple(row[name] for name in _PLACE): row for row in rows if row["training"] not in keys}
    edits: Counter[str] = Counter()
    for training in todo:
        row = asked_row(training)
        replaced = earlier.get(tuple(row[name] for name in _PLACE))
        if training.key not in known and replaced is not None and _has_own_settings(row):
            edits[_text(list(_differences(row, replaced)))] += 1
    return [
        f"edited since an earlier launch: {text}; {count} {'training starts' if count == 1 else 'trainings start'} "
        "over, and the earlier results are kept"
        for text, count in edits.items()
        if text
    ]


def describe_left_out(before: ResultsTable, asked: Collection[Training]) -> list[str]:
    """Describe how many results of a sweep of the same name the report will lack: those of what is not asked now.

    Args:
        before: the table as an earlier launch left it.
        asked: the sweep's trainings.
    """
    keys = {training.key for training in asked}
    done = (row for row in before.rows((*_ASKED, "status")) if row["status"] == "done" and _has_own_settings(row))
    left = [tuple(row[name] for name in _PLACE) for row in done if row["training"] not in keys]
    now = [asked_row(training) for training in asked] if left else []
    count = len(set(left) - {tuple(row[name] for name in _PLACE) for row in now})
    name = before.header.sweep
    line = f"{count} results of an earlier launch named {name} are not of this sweep, and its report leaves them out"
    return [f"{line}; under another name, both keep their reports and MLflow pages"] if count else []


def describe_code(table: ResultsTable, git_diff: str) -> list[str]:
    """Describe how many finished results were computed without the uncommitted changes of the current source tree.

    Args:
        table: the sweep's table.
        git_diff: as in its column; empty if there are no uncommitted changes.
    """
    rows = list(table.rows(("status", "git_diff"))) if git_diff else []
    without = sum(row["status"] == "done" and row["git_diff"] != git_diff for row in rows)
    if not without:
        return []
    return [
        f"the source tree has uncommitted changes that {without} finished trainings ran without "
        "(--force repeats finished trainings)"
    ]


def _has_own_settings(row: Mapping[str, Any]) -> bool:
    """Whether a training has the sweep's own settings, which somebody edits, not those that a search tried or chose."""
    return (row["role"] == "report" and row["grid"] in ("", DEFAULT)) or DEFAULT in row["grid"].split(",")


def _differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[str]:
    stages = [_stages(row) for row in (then, now)]
    if stages[0] != stages[1]:
        yield f"stages {', '.join(stages[0])} -> {', '.join(stages[1])}"
    for name in sorted(key for key in now.keys() | then.keys() if key.startswith(SETTING)):
        # The code of a weight is a setting only where somebody has edited it.
        default = "as shipped" if name.endswith("_code") else None
        values = [row.get(name) or default for row in (then, now)]
        if None not in values and values[0] != values[1]:
            yield f"{name.removeprefix(SETTING)} {values[0]} -> {values[1]}"
    if now["data_fingerprint"] != then["data_fingerprint"]:
        yield f"the data ({then['data_fingerprint']} -> {now['data_fingerprint']})"


def _stages(row: Mapping[str, Any]) -> list[str]:
    names = (name.removeprefix(SETTING).split(".") for name, value in row.items() if value and name.startswith(SETTING))
    return sorted({words[1] for words in names if words[0] == "stages"})


def _text(differences: list[str]) -> str:
    more = f", and {len(differences) - _MAX_SHOWN} more" if len(differences) > _MAX_SHOWN else ""
    return ", ".join(differences[:_MAX_SHOWN]) + more
