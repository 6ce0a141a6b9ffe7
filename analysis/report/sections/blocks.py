"""The sections on single blocks: their tables and heatmaps, what is missing, and the settings."""

from __future__ import annotations

import pandas as pd

from goal_sweep.analysis.blocks import Block, Objective
from goal_sweep.analysis.figures.heatmap import draw_heatmap
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import GridTable, Picture, Section, TextTable
from goal_sweep.analysis.results import in_grid
from goal_sweep.analysis.wording import numbers_text, seeds_text
from goal_sweep.sweeps.results import DEFAULT, MEASURES, measure_slug


def block_section(block: Block, colour: str, *, folded: bool) -> Section:
    """A block's tables and heatmaps in its full ``colour``, or a warning if nothing is finished."""
    title, num_gaps = block.key.title, len(block.gaps)
    if block.is_empty:
        warning = f"Nothing of this block is finished: {num_gaps} runs are missing. {block.protocol}"
        return Section(anchor=block.slug, title=title, num_missing=num_gaps, warnings=(warning,))
    grids = tuple(
        GridTable(
            block=block,
            measure=measure,
            colour=colour,
            heatmap=Picture(
                stem=f"heatmaps/{block.slug}-{measure_slug(measure)}",
                title=f"Heatmap of {measure}: {title}",
                draw=draw_heatmap,
                arguments=(block, colour, measure),
            ),
        )
        for measure in MEASURES
    )
    return Section(anchor=block.slug, title=title, num_missing=num_gaps, grids=grids, folded=folded)


def missing_section(inputs: Inputs) -> Section | None:
    """All missing results; None without any."""
    rows = [row for block in inputs.blocks for row in _missing_rows(block)]
    head = ("block", "objectives", "seeds", "status", "reason")
    table = TextTable(title="By block and reason", head=head, rows=tuple(rows), words=len(head))
    return Section(anchor="missing", title="Missing results", tables=(table,)) if rows else None


def _missing_rows(block: Block) -> list[tuple[str, ...]]:
    """A row for all objectives that lack the same seeds for the same reason, so that a lost stage is one row."""
    seeds: dict[tuple[str, str, str], list[int]] = {}
    for objective, gap in block.gaps:
        seeds.setdefault((objective, gap.status, gap.reason), []).append(gap.seed)
    objectives: dict[tuple[str, str, str], list[str]] = {}
    for (objective, status, reason), numbers in seeds.items():
        objectives.setdefault((numbers_text(numbers), status, reason), []).append(objective)
    requested = sum(cell.requested for cell in block.cells.values())
    return [
        (block.key.title, f"all {requested}" if len(names) == requested > 1 else ", ".join(names), *rest)
        for rest, names in objectives.items()
    ]


def settings_section(inputs: Inputs) -> Section | None:
    """The settings of the trainings: a table of those that all share, and one for each block's own."""
    results = inputs.results
    runs = results.counted
    if runs.empty:
        return None
    settings = results.settings(runs)
    shared = sorted(name for name in map(str, settings.columns) if not name.startswith(("objective.", "seed")))
    same = [name for name in shared if settings[name].nunique() == 1 and not name.startswith("stages.")]
    tables = [_setting_table("All trainings", [(name, str(settings[name].iloc[0])) for name in same])]
    for block in inputs.blocks:
        own = settings.loc[results.of_block(runs, block.key).index]
        stage = f"stages.{block.key.stage}."
        here = [
            name for name in shared if name not in same and (name.startswith(stage) or not name.startswith("stages."))
        ]
        tables.append(_setting_table(block.key.title, [(name, _values(own[name])) for name in here if any(own[name])]))
    tables.append(_objective_table(inputs, runs[in_grid(runs, DEFAULT)] if results.header.grids else runs))
    data = ", ".join(sorted(set(runs["data_fingerprint"])))
    paragraph = f"{seeds_text(results.header.seeds).capitalize()}. Data fingerprint {data}."
    if stacked := int(runs["stacked"].notna().sum()):
        paragraph += f" In {stacked} of {len(runs)} trainings the heads trained as a stack with those of other cells."
    nonempty = tuple(table for table in tables if table.rows)
    return Section(anchor="settings", title="Settings", paragraphs=(paragraph,), tables=nonempty)


def _values(column: pd.Series[str]) -> str:
    return ", ".join(sorted(set(column) - {""}))


def _objective_table(inputs: Inputs, runs: pd.DataFrame) -> TextTable:
    settings, header = inputs.results.settings(runs), inputs.results.header
    names = [name for name in map(str, settings.columns) if name.startswith("objective.")]
    names = [name for name in names if name not in ("objective.pair", "objective.triplet")]
    rows: dict[Objective, tuple[str, str]] = {}
    for pair, triplet in header.objectives:
        own = settings[(runs["pair"] == pair) & (runs["triplet"] == triplet)]
        values = [f"{name.removeprefix('objective.')} {_values(own[name])}" for name in names if any(own[name])]
        if len(own):
            rows[pair, triplet] = (f"{pair}/{triplet}", "; ".join(values) or "none")
    title = "Parameters of the objectives" + (f", {DEFAULT} grid" if header.grids else "")
    return TextTable(title=title, head=("objective", "parameters"), rows=tuple(rows.values()), words=2)


def _setting_table(title: str, rows: list[tuple[str, str]]) -> TextTable:
    return TextTable(title=title, head=("setting", "value"), rows=tuple(rows), words=2)
