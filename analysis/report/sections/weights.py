"""The section on each weight on its own: its mean, and whether it matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from goal_sweep.analysis.blocks import MODEL_COLUMNS, Block
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.effects import (
    EFFECTS,
    Effect,
    crossed_runs,
    factor_effects,
    subjects_of,
    whole_subjects,
)
from goal_sweep.analysis.statistics.images import shared_noise
from goal_sweep.analysis.wording import count_text, mean_text, p_equation
from goal_sweep.sweeps.results import MAIN_METRICS, RSUM, Metric

MIN_BLOCKS = 3
"""The fewest blocks over which effects are measured."""
_NOTE = (
    "Rows of weights: the mean over the other weight within each seed, then mean ± standard deviation (ddof = 1) over "
    "the n seeds with every cell of that row or column. Effects: the same n subjects are measured under every "
    "objective, the seeds of one block or, over several blocks, the blocks averaged over seeds. Points are the highest "
    "minus the lowest mean of a weight or, for the interaction, the largest deviation of a cell from the sum of its "
    "row's and column's effects. p is that of the largest such contrast, corrected for their number."
)
_Effects = Mapping[Metric, Sequence[Effect]]


def weights_section(inputs: Inputs) -> Section | None:
    """Tables of weights and their effects; None when no block has two objectives."""
    runs = inputs.runs
    if all(len(block.grids[RSUM.key].means) < 2 for block in inputs.first):
        return None
    paragraphs, tables = [_NOTE], list[TextTable]()
    for stage, here in runs.groupby("stage", sort=False):
        crossed = crossed_runs(here)
        blocks = [block for block in inputs.first if block.key.stage == stage and not block.is_empty]
        paragraphs += [*_incomplete_seeds(inputs, blocks, crossed), *_left_out(here, crossed, str(stage))]
        tables += [_block_table(inputs, block, crossed) for block in blocks]
        if len(blocks) >= MIN_BLOCKS:
            effects = {metric: factor_effects(subjects_of(crossed, metric, MODEL_COLUMNS)) for metric in MAIN_METRICS}
            tables.append(_table(f"Stage {stage}, over blocks", [], effects))
    return Section(
        anchor="weights",
        title="Each weight on its own, and statistical significance",
        paragraphs=tuple(paragraphs),
        tables=tuple(table for table in tables if table.rows),
    )


def _left_out(runs: pd.DataFrame, crossed: pd.DataFrame, stage: str) -> list[str]:
    """A sentence on the objectives that the effects cannot use, because their weights are not combined with all."""
    rest = sorted(set(runs["pair"] + "/" + runs["triplet"]) - set(crossed["pair"] + "/" + crossed["triplet"]))
    if not rest:
        return []
    what = "the effects of the pair and triplet weights leave out what is not combined with every other weight"
    return [f"Stage {stage}: {what}: {', '.join(rest)}."]


def _incomplete_seeds(inputs: Inputs, blocks: Sequence[Block], runs: pd.DataFrame) -> list[str]:
    """A sentence for each block that has seeds without all objectives, which the effects cannot use."""
    sentences = []
    for block in blocks:
        if incomplete := {gap.seed for _, gap in block.gaps}:
            part = subjects_of(inputs.results.of_block(runs, block.key), MAIN_METRICS[0], ["seed"])
            whole, shared = whole_subjects(part).shape
            used = f"use {whole} seeds and the {shared} objectives they share" if whole > 1 else "are omitted"
            lacking = f"{count_text(len(incomplete), 'seed')} without all objectives"
            sentences.append(f"{block.key.title}: {lacking}, so the effects of the weights {used}.")
    return sentences


def _block_table(inputs: Inputs, block: Block, runs: pd.DataFrame) -> TextTable:
    part, means = inputs.results.of_block(runs, block.key), inputs.marginals
    own = means[(means[list(MODEL_COLUMNS)] == [getattr(block.key, name) for name in MODEL_COLUMNS]).all(axis=1)]
    own = own[own["stage"] == block.key.stage]
    rows = [
        (f"{'P' if factor == 'pair' else 'T'} {level}", *_means(weight), str(weight["n"].iloc[0]))
        for (factor, level), weight in own.groupby(["factor", "level"], sort=False)
        if own["n"].any()  # an incomplete grid may have no complete row or column
    ]
    images = shared_noise(part) or {}
    effects = {m: factor_effects(subjects_of(part, m, ["seed"]), images.get(m.key)) for m in MAIN_METRICS}
    return _table(block.key.title, rows, effects)


def _table(title: str, rows: Sequence[tuple[str, ...]], effects: _Effects) -> TextTable:
    """A row for each weight, then one for each effect."""
    said = [
        (
            EFFECTS[same[0].name],
            *(f"{one.spread:.1f} points, {p_equation(one.p)}" for one in same),
            str(same[0].subjects),
        )
        for same in zip(*effects.values(), strict=True)
    ]
    head = ("weight", *(metric.title for metric in effects), "n")
    return TextTable(title=title, head=head, rows=(*rows, *said))


def _means(part: pd.DataFrame) -> list[str]:
    rows = [part[(part["direction"] == m.direction) & (part["metric"] == m.name)].iloc[0] for m in MAIN_METRICS]
    return [mean_text(row["mean"], row["std"]) if row["n"] else "--" for row in rows]
