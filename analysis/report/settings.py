"""With which settings the numbers were made, and where runs that are averaged differ in them."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from analysis.report.chapter import Chapter
from analysis.report.sections import TextTable
from analysis.statistics.aggregate import counted, of_block
from analysis.tracking.blocks import Block
from analysis.tracking.fetch import SweepRuns
from analysis.tracking.run_schema import TAG_SETTINGS_KEY

_OWN = ("objective.", "seed")
"""Settings in which the runs of a block are meant to differ."""


def settings_chapter(sweep: SweepRuns, blocks: Iterable[Block]) -> Chapter | None:
    """The settings of the counted runs as tables: those that all share, and each block's where blocks differ.

    Returns:
        The chapter; None when no run that counts has a parameter.
    """
    runs = counted(sweep)
    shared = _shared_columns(sweep)
    if runs.empty or not shared:
        return None
    table = sweep.settings.loc[runs["run_id"], shared]
    same = [name for name in shared if table[name].nunique() == 1]
    tables = [_table("Of every training", [(name, str(table[name].iloc[0])) for name in same])]
    for block in blocks:
        mine = sweep.settings.loc[of_block(runs, block.key)["run_id"]]
        rows = [(name, _values(mine[name])) for name in shared if name not in same and len(mine)]
        if rows:
            tables.append(_table(block.key.title, rows))
    tables.append(_objectives(sweep, runs))
    fingerprints = ", ".join(sorted(set(runs["data_fingerprint"])))
    return Chapter(
        anchor="settings",
        title="Settings",
        paragraphs=(f"Seeds {', '.join(map(str, sweep.seeds))}. Data fingerprint {fingerprints}.",),
        tables=tuple(one for one in tables if one.rows),
    )


def settings_notes(sweep: SweepRuns, blocks: Iterable[Block]) -> list[str]:
    """A warning for every block whose counted runs differ in settings, naming the settings and the seeds."""
    runs = counted(sweep)
    notes = []
    for block in blocks:
        here = of_block(runs, block.key)
        shared = [name for name in _shared_columns(sweep) if sweep.settings.loc[here["run_id"], name].nunique() > 1]
        differing = [_by_value(sweep, here, name) for name in shared]
        for (pair, triplet), part in here.groupby(["pair", "triplet"]):
            own = [name for name in sweep.settings.columns if name.startswith("objective.")]
            own = [name for name in own if sweep.settings.loc[part["run_id"], name].nunique() > 1]
            differing += [f"{pair}/{triplet} {_by_value(sweep, part, name)}" for name in own]
        keys = set(here["settings_key"]) - {""}
        if not differing and len(keys) > 1:
            differing = [f"{TAG_SETTINGS_KEY} ({', '.join(sorted(keys))})"]
        if differing:
            notes.append(f"{block.key.title}: runs that are averaged differ in their settings: {'; '.join(differing)}.")
    return notes


def _shared_columns(sweep: SweepRuns) -> list[str]:
    return sorted(name for name in map(str, sweep.settings.columns) if not name.startswith(_OWN))


def _values(column: pd.Series[str]) -> str:
    return ", ".join(sorted({value or "not recorded" for value in column}))


def _by_value(sweep: SweepRuns, runs: pd.DataFrame, name: str) -> str:
    """As in ``stages.frozen.lr (0.001: seeds 1, 2; 0.002: seed 3)``."""
    values = sweep.settings.loc[runs["run_id"], name]
    parts = []
    for value in sorted(set(values)):
        seeds = sorted(set(runs["seed"][(values == value).to_numpy()]))
        word = "seed" if len(seeds) == 1 else "seeds"
        parts.append(f"{value or 'not recorded'}: {word} {', '.join(map(str, seeds))}")
    return f"{name} ({'; '.join(parts)})"


def _objectives(sweep: SweepRuns, runs: pd.DataFrame) -> TextTable:
    names = [name for name in map(str, sweep.settings.columns) if name.startswith("objective.")]
    names = [name for name in names if name not in ("objective.pair", "objective.triplet")]
    rows = []
    for pair, triplet in sweep.objectives:
        ids = runs[(runs["pair"] == pair) & (runs["triplet"] == triplet)]["run_id"]
        found = sweep.settings.loc[ids]
        own = [f"{n.removeprefix('objective.')} {_values(found[n])}" for n in names if (found[n] != "").any()]
        if len(ids):
            rows.append((f"{pair}/{triplet}", "; ".join(own) or "none"))
    return TextTable(title="Parameters of the objectives", head=("objective", "parameters"), rows=tuple(rows), words=2)


def _table(title: str, rows: list[tuple[str, str]]) -> TextTable:
    return TextTable(title=title, head=("setting", "value"), rows=tuple(rows), words=2)
