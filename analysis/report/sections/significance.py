"""The section on statistical significance: the effects of each weight, and ranks over blocks, each with its n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from analysis.blocks import MODEL_COLUMNS, Block
from analysis.figures.comparisons import draw_rank_diagram
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.statistics.effects import EFFECTS, Effect, crossed_runs, factor_effects, subjects_of, whole_subjects
from analysis.statistics.images import shared_noise
from analysis.statistics.ranks import MIN_BLOCKS, RankComparison, rank_objectives
from analysis.wording import count_text, p_equation, p_text
from sweeps.results import MAIN_METRICS, RSUM, Metric

_EFFECT_NOTE = (
    "The effects of the weights: the same subjects are measured under every objective, the seeds of one block or, "
    "where several blocks are pooled, the blocks averaged over seeds. Points are the highest minus the lowest level "
    "mean or, for the interaction, the largest deviation of a cell from the sum of its row's and column's effects. p "
    "is that of the largest such contrast, corrected for their number."
)
_Effects = Mapping[Metric, Sequence[Effect]]


def significance_section(inputs: Inputs) -> Section | None:
    """Which weights matter, and how objectives rank over blocks; None when no block has two objectives."""
    blocks, runs = inputs.first, inputs.runs
    if all(len(block.grids[RSUM.key].means) < 2 for block in blocks):
        return None
    paragraphs: list[str] = []
    figures: list[Picture] = []
    tables: list[TextTable] = []
    for stage, here in runs.groupby("stage", sort=False):
        crossed, of_stage = crossed_runs(here), [block for block in blocks if block.key.stage == stage]
        groups = _effects(inputs, [block for block in of_stage if not block.is_empty], crossed, str(stage))
        ranks = {metric: comparison for metric in MAIN_METRICS if (comparison := _ranks(here, metric)) is not None}
        paragraphs += [*_incomplete_seeds(inputs, of_stage, crossed), *_left_out(here, crossed, str(stage))]
        tables += [effect_table(title, effects) for title, effects in groups if any(effects.values())]
        figures += [_diagram(comparison, str(stage), metric) for metric, comparison in ranks.items()]
        tables += [_rank_table(comparison, str(stage), metric) for metric, comparison in ranks.items()]
    num_blocks = runs.groupby("stage").apply(lambda part: part.groupby(list(MODEL_COLUMNS)).ngroups).max()
    if num_blocks < MIN_BLOCKS:
        least = f"Ranks over blocks need at least {MIN_BLOCKS} blocks of one stage"
        paragraphs.append(f"{least}; this sweep has {num_blocks}.")
    return Section(
        anchor="significance",
        title="Statistical significance",
        paragraphs=(_EFFECT_NOTE, *paragraphs),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def _effects(inputs: Inputs, blocks: Sequence[Block], runs: pd.DataFrame, stage: str) -> list[tuple[str, _Effects]]:
    """Effects within each block of a stage, and over its blocks when there are three or more."""
    groups: list[tuple[str, _Effects]] = []
    for block in blocks:
        part = inputs.results.of_block(runs, block.key)
        images = shared_noise(part) or {}
        groups.append(
            (
                f"{block.key.title}, over seeds",
                {m: factor_effects(subjects_of(part, m, ["seed"]), images.get(m.key)) for m in MAIN_METRICS},
            )
        )
    if len(blocks) >= MIN_BLOCKS:
        over_blocks = {metric: factor_effects(subjects_of(runs, metric, MODEL_COLUMNS)) for metric in MAIN_METRICS}
        groups.append((f"Stage {stage}, over blocks", over_blocks))
    return groups


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
        incomplete = {gap.seed for _, gap in block.gaps}
        if block.is_empty or not incomplete:
            continue
        part = subjects_of(inputs.results.of_block(runs, block.key), MAIN_METRICS[0], ["seed"])
        whole, shared = whole_subjects(part).shape
        used = f"use {whole} seeds and the {shared} objectives they share" if whole > 1 else "are omitted"
        lacking = f"{count_text(len(incomplete), 'seed')} without all objectives"
        sentences.append(f"{block.key.title}: {lacking}, so the effects of the weights {used}.")
    return sentences


def effect_table(title: str, effects: _Effects) -> TextTable:
    """A row for each metric and effect."""
    rows = [
        (
            metric.title,
            EFFECTS[effect.name],
            f"{effect.spread:.1f}",
            p_text(effect.p),
            str(effect.subjects),
        )
        for metric, own in effects.items()
        for effect in own
    ]
    head = ("metric", "effect", "points", "p", "n subjects")
    return TextTable(title=f"Effects: {title}", head=head, rows=tuple(rows), words=2)


def _ranks(runs: pd.DataFrame, metric: Metric) -> RankComparison | None:
    means = runs.groupby([*MODEL_COLUMNS, "pair", "triplet"])[metric.test].mean().unstack(["pair", "triplet"])
    means.columns = ["/".join(map(str, key)) for key in means.columns]
    return rank_objectives(means)


def _diagram(comparison: RankComparison, stage: str, metric: Metric) -> Picture:
    title = f"{metric.title} over {comparison.num_blocks} blocks, stage {stage}"
    return Picture(
        stem=f"figures/ranks-{stage}-{metric.slug}",
        title=f"Critical-difference diagram: {title}",
        draw=draw_rank_diagram,
        arguments=(comparison, title),
        note="Mean rank over blocks; 1 is best. A bar joins objectives whose ranks do not differ significantly at 5 % "
        f"(Nemenyi). {_friedman(comparison)}",
    )


def _rank_table(comparison: RankComparison, stage: str, metric: Metric) -> TextTable:
    best = next(iter(comparison.mean_ranks))
    rows = [
        (name, f"{rank:.2f}", "--" if name == best else p_text(comparison.p_between(best, name)))
        for name, rank in comparison.mean_ranks.items()
    ]
    return TextTable(
        title=f"Ranks over blocks: {metric.title}, stage {stage}",
        head=("objective", "mean rank", f"p against {best} (Nemenyi)"),
        rows=tuple(rows),
        note=_friedman(comparison),
    )


def _friedman(comparison: RankComparison) -> str:
    k = len(comparison.mean_ranks)
    few = " With so few blocks, this p is a rough approximation." if comparison.num_blocks < 10 else ""
    return (
        f"Friedman: chi-squared({k - 1}) = {comparison.friedman:.1f}, {p_equation(comparison.p)}, "
        f"n = {comparison.num_blocks} blocks, {k} objectives; critical difference "
        f"{comparison.critical_difference:.2f}.{few}"
    )
