"""What changed since earlier launches of a sweep: settings, data and code, by its results table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from goal_sweep.runners.results.rows import DIFF_DIGITS, asked_row
from goal_sweep.runners.results.table import ResultsTable
from goal_sweep.runners.store.provenance import gather
from goal_sweep.sweeps import ResolvedSweep, Training
from goal_sweep.sweeps.results import DEFAULT, SETTING

_ASKED = (
    *("training", "stage", "pair", "triplet", "seed", "backbone", "framework", "point", "role", "grid"),
    *("data_fingerprint", "status", "git_diff", SETTING),
)
_MAX_SHOWN = 5


def edits_since(before: ResultsTable | None, sweep: ResolvedSweep, todo: Collection[Training]) -> list[str]:
    """What changed since an earlier launch of the sweep, a line each.

    Args:
        before: the table as that launch left it; None without one.
    """
    git_diff = gather().git_diff_sha256[:DIFF_DIGITS] if todo else ""
    return [] if before is None else [*changes(before, sweep.trainings, todo, git_diff)]


def changes(
    before: ResultsTable, asked: Collection[Training], todo: Collection[Training], git_diff: str = ""
) -> Iterator[str]:
    """Describe what was edited, which results the report will lack, and which were computed without code of now.

    Args:
        git_diff: the uncommitted changes of the source tree, as in their column; empty if there are none.
    """
    rows, keys = list(before.rows(_ASKED)), {training.key for training in asked}
    own = [row for row in rows if _has_own_settings(row)]
    gone, known = [row for row in own if row["training"] not in keys], {row["training"] for row in own}
    replaced = {_place(row): row for row in gone}
    edits: Counter[str] = Counter()
    for row in (asked_row(training) for training in todo if training.key not in known):
        if _place(row) in replaced and _has_own_settings(row):
            edits[_text(list(_differences(row, replaced[_place(row)])))] += 1
    for text, count in edits.items():
        if text:
            start = "training starts" if count == 1 else "trainings start"
            yield f"edited since an earlier launch: {text}; {count} {start} over, and the earlier results are kept"
    done = {_place(row) for row in gone if row["status"] == "done"}
    if left_out := done - {_place(asked_row(training)) for training in asked}:
        yield (
            f"{len(left_out)} results of an earlier launch named {before.header.sweep} are not of this sweep, and its "
            "report leaves them out; under another name, both keep their reports and MLflow pages"
        )
    without = sum(row["status"] == "done" and row["git_diff"] != git_diff for row in rows) if git_diff else 0
    if without:
        yield (
            f"the source tree has uncommitted changes that {without} finished trainings ran without; another --store "
            "repeats them"
        )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a training stands: it equals that of the earlier training that it replaces."""
    return tuple(row[name] for name in ("stage", "pair", "triplet", "seed", "backbone", "framework", "point"))


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
