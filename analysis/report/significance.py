"""The section on statistical significance: a summary in words, then effects, intervals and ranks, each with its n.

The summary claims nothing that a test in the report does not support.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from analysis import run_schema as schema
from analysis.blocks import MODEL_COLUMNS, Block, Grid, count_text, mean_text, p_equation, p_text
from analysis.figures import draw_rank_diagram, write_figure
from analysis.report.document import FigureLink, ReportFolder, Section
from analysis.report.tables import TextTable
from analysis.run_schema import DIRECTION_TITLES, MAIN_METRICS, Metric
from analysis.statistics import (
    EFFECTS,
    MIN_BLOCKS,
    Effect,
    RankComparison,
    can_be_significant,
    crossed_runs,
    factor_effects,
    of_block,
    rank_objectives,
    subjects_of,
    whole_subjects,
)

LEVEL = 0.05
"""Significance level of the statements."""
_R1 = tuple(metric for metric in MAIN_METRICS if metric.name == "R@1")
_EFFECT_NOTE = (
    "The same subjects are measured under every objective: the seeds of one block or, where several blocks are pooled, "
    "the blocks averaged over seeds. p is that of the largest contrast of levels (for the interaction, of the largest "
    "deviation of a cell from the sum of its row's and column's effects), corrected for the number of contrasts. F is "
    "that of the repeated-measures analysis of variance, partial η² the share of the effect in the effect plus its "
    "error, with a 95 % interval from the noncentral F distribution; with few subjects it is biased upwards. Points "
    "are the highest minus the lowest level mean or, for the interaction, the largest deviation."
)


def significance_section(
    blocks: Sequence[Block], runs: pd.DataFrame, differences: pd.DataFrame, folder: ReportFolder
) -> Section | None:
    """The significance of the differences between a sweep's objectives.

    Args:
        blocks: all blocks of the sweep.
        runs: the runs that count.
        differences: from `paired_differences` of the same runs.
        folder: the report's folder, for the rank diagrams.

    Returns:
        The section; None when no block has two objectives.
    """
    paragraphs = [text for block in blocks if (text := block_verdict(block))]
    if not paragraphs:
        return None
    figures: list[FigureLink] = []
    tables: list[TextTable] = []
    for stage, here in runs.groupby("stage", sort=False):
        crossed = crossed_runs(here)
        groups = _effects(blocks, crossed, str(stage))
        ranks = {metric: _ranks(here, metric) for metric in MAIN_METRICS}
        paragraphs += [*_incomplete_seeds(blocks, crossed, str(stage)), *_left_out(here, crossed, str(stage))]
        here_differences = differences[differences["stage"] == stage]
        if text := stage_verdict(str(stage), here_differences, groups, ranks[_R1[0]]):
            paragraphs.append(text)
        tables += [effect_table(title, effects) for title, effects in groups if any(effects.values())]
        for metric, comparison in ranks.items():
            if comparison is not None:
                figures.append(_diagram(comparison, str(stage), metric, folder))
                tables.append(_rank_table(comparison, str(stage), metric))
    return Section(
        anchor="significance",
        title="Statistical significance",
        paragraphs=(*paragraphs, *_omitted_analyses(runs)),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def _omitted_analyses(runs: pd.DataFrame) -> list[str]:
    """A sentence for each analysis that the sweep is too small for."""
    sentences = []
    num_blocks = runs.groupby("stage").apply(lambda part: part.groupby(list(MODEL_COLUMNS)).ngroups).max()
    if num_blocks < MIN_BLOCKS:
        sentences.append(
            f"Ranks over blocks need at least {MIN_BLOCKS} blocks of one stage; this sweep has {num_blocks}."
        )
    return sentences


def _effects(
    blocks: Sequence[Block], runs: pd.DataFrame, stage: str
) -> list[tuple[str, dict[Metric, tuple[Effect, ...]]]]:
    """Effects within each block of a stage, and over its blocks when there are three or more."""

    def of(part: pd.DataFrame, within: Sequence[str]) -> dict[Metric, tuple[Effect, ...]]:
        return {metric: factor_effects(subjects_of(part, metric, within)) for metric in MAIN_METRICS}

    here = [block for block in blocks if block.key.stage == stage and not block.is_empty]
    groups = [(f"{block.key.title}, over seeds", of(of_block(runs, block.key), ["seed"])) for block in here]
    if len(here) >= MIN_BLOCKS:
        groups.append((f"Stage {stage}, over blocks", of(runs, MODEL_COLUMNS)))
    return groups


def _left_out(runs: pd.DataFrame, crossed: pd.DataFrame, stage: str) -> list[str]:
    """A sentence on the objectives that the effects cannot use, because their weights are not combined with all."""
    rest = sorted(set(runs["pair"] + "/" + runs["triplet"]) - set(crossed["pair"] + "/" + crossed["triplet"]))
    which = "has a weight that is" if len(rest) == 1 else "have weights that are"
    sentence = (
        f"Stage {stage}: the effects of the pair and triplet weights leave out {', '.join(rest)}, which {which} not "
        "combined with every other weight."
    )
    return [sentence] if rest else []


def _incomplete_seeds(blocks: Sequence[Block], runs: pd.DataFrame, stage: str) -> list[str]:
    """A sentence for each block that has seeds without all objectives, which the effects cannot use."""
    sentences = []
    for block in blocks:
        if block.key.stage != stage or block.is_empty:
            continue
        grid = next(iter(block.grids.values()))
        incomplete = {gap.seed for cell in grid.cells.values() for gap in cell.gaps}
        if not incomplete:
            continue
        part = subjects_of(of_block(runs, block.key), MAIN_METRICS[0], ["seed"])
        whole, num_objectives = whole_subjects(part)
        used = f"computed from {whole} seeds and the {num_objectives} objectives they share" if whole > 1 else "omitted"
        sentences.append(
            f"{block.key.title}: {count_text(len(incomplete), 'seed')} without all objectives, so the effects of the "
            f"pair and triplet weights are {used}."
        )
    return sentences


def effect_table(title: str, effects: Mapping[Metric, Sequence[Effect]]) -> TextTable:
    """A row for each metric and effect."""
    rows = [
        (
            metric.title,
            EFFECTS[e.name],
            f"{e.spread:.1f}",
            f"F({e.df:g}, {e.df_error:g}) = {e.f:.2f}",
            p_text(e.p),
            f"{e.partial_eta_squared:.2f} {_eta_interval(e)}".strip(),
            str(e.subjects),
        )
        for metric, found in effects.items()
        for e in found
    ]
    head = ("metric", "effect", "points", "F", "p", "partial η²", "n subjects")
    return TextTable(title=f"Effects: {title}", head=head, rows=tuple(rows), note=_EFFECT_NOTE, words=2)


def _eta_interval(effect: Effect) -> str:
    return "" if math.isnan(effect.eta_low) else f"[{effect.eta_low:.2f}, {effect.eta_high:.2f}]"


def _ranks(runs: pd.DataFrame, metric: Metric) -> RankComparison | None:
    means = runs.groupby([*MODEL_COLUMNS, "pair", "triplet"])[metric.test].mean().unstack(["pair", "triplet"])
    means.columns = ["/".join(map(str, key)) for key in means.columns]
    return rank_objectives(means)


def _diagram(comparison: RankComparison, stage: str, metric: Metric, folder: ReportFolder) -> FigureLink:
    stem = f"figures/ranks-{stage}-{metric.direction}-{schema.measure_slug(metric.name)}"
    title = f"{metric.title} over {comparison.num_blocks} blocks, stage {stage}"
    paths = [folder.path(f"{stem}.{suffix}") for suffix in ("pdf", "svg", "png")]
    write_figure(paths, draw_rank_diagram, comparison, title)
    return FigureLink(
        path=f"{stem}.png",
        title=f"Critical-difference diagram: {title}",
        note="Mean rank over blocks; 1 is best. A bar joins objectives whose ranks do not differ significantly at 5 % "
        f"(Nemenyi). {_friedman(comparison)}",
    )


def _rank_table(comparison: RankComparison, stage: str, metric: Metric) -> TextTable:
    best = next(iter(comparison.mean_ranks))
    rows = tuple(
        (name, f"{rank:.2f}", "--" if name == best else p_text(comparison.p_between(best, name)))
        for name, rank in comparison.mean_ranks.items()
    )
    return TextTable(
        title=f"Ranks over blocks: {metric.title}, stage {stage}",
        head=("objective", "mean rank", f"p against {best} (Nemenyi)"),
        rows=rows,
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


def block_verdict(block: Block) -> str:
    """A sentence for each direction: the best mean, and which others are within noise of it."""
    sentences = []
    for metric in _R1:
        grid = block.grids[metric.key]
        if len(grid.means) < 2:
            continue
        best = max(grid.means, key=lambda key: grid.means[key])
        cell = grid.cells[best]
        mean = mean_text(grid.means[best], cell.std, always_std=False)
        direction = DIRECTION_TITLES[metric.direction]
        if len(grid.best()) == len(grid.means):
            sentences.append(f"{direction}: all {len(grid.means)} objectives have the same mean R@1, {mean}.")
            continue
        sentences.append(
            f"{direction}: {'/'.join(best)} has the highest mean R@1, {mean} "
            f"(n = {cell.n}); {_others_text(grid)}. {_from_baseline_text(grid)}".rstrip()
        )
    return f"{block.key.title}. {' '.join(sentences)}" if sentences else ""


def stage_verdict(
    stage: str,
    differences: pd.DataFrame,
    effects: Sequence[tuple[str, Mapping[Metric, Sequence[Effect]]]],
    ranks: RankComparison | None,
) -> str:
    """What holds for a stage as a whole: differences from con/con, effects of each weight, ranks over blocks.

    Empty if nothing does.

    Args:
        stage: its name.
        differences: rows of `paired_differences` of this stage.
        effects: a title and the effects by metric of each group of runs that was analysed.
        ranks: the ranks over blocks; None with too few blocks.
    """
    sentences = [_against_baseline(differences), *(_by_factor(title, rows) for title, rows in effects)]
    if ranks is not None:
        sentences.append(_over_blocks(ranks))
    said = [sentence for sentence in sentences if sentence]
    return " ".join([f"Stage {stage}.", *said]) if said else ""


def _others_text(grid: Grid) -> str:
    """How the other cells compare with the best: within noise, different, or without an interval."""
    others, without_interval = len(grid.means) - 1, len(grid.without_interval)
    if without_interval == others:
        which = f"any of the {others} others" if others > 1 else "the other"
        return f"with fewer than two seeds in common, there is no interval for its difference from {which}"
    near = [key for key in grid.means if key in grid.near]
    text = _near(near, others - without_interval)
    if without_interval:
        text += f"; no interval against the {without_interval} with fewer than two seeds in common"
    return text


def _near(near: Sequence[tuple[str, str]], others: int) -> str:
    if not near:
        each = f"each of the {others} others" if others > 1 else "the other"
        return f"it is told apart from {each}"
    if len(near) == others:
        which = f"all {others} others are" if others > 1 else "the other is"
        return f"{which} within noise of it with these seeds"
    names = ", ".join("/".join(key) for key in near)
    return f"within noise of it ({len(near)} of {others}): {names}"


def _from_baseline_text(grid: Grid) -> str:
    """The objectives that are told apart from con/con, by the rule of the marks."""
    judged = {key: found for key, found in grid.from_baseline.items() if found.p is not None}
    if not judged:
        return ""
    apart = [f"{'/'.join(key)} ({found.estimate:+.1f})" for key, found in judged.items() if found.told_apart]
    return f"Told apart from con/con: {', '.join(apart) or 'none'}."


def _against_baseline(differences: pd.DataFrame) -> str:
    """The differences from con/con over several blocks, if their number allows any to be significant."""
    shown = differences[differences["metric"] == "R@1"]
    if shown.empty or int(shown["blocks"].max()) == 1 or not can_be_significant(shown):
        return ""
    parts = []
    for direction, rows in shown.groupby("direction", sort=False):
        found = rows[rows["p_holm"] < LEVEL]
        differing = [f"{r['pair']}/{r['triplet']} ({r['difference']:+.1f})" for r in found.to_dict("records")]
        parts.append(f"{DIRECTION_TITLES[str(direction)]}: {', '.join(differing) or 'none'}")
    where = (
        f"{shown['n'].max()} pairs from {shown['blocks'].max()} blocks; in at least one block, not necessarily in all"
    )
    return f"Different from con/con in R@1 at 5 % after Holm's correction (n = {where}): {'; '.join(parts)}."


def _by_factor(title: str, effects: Mapping[Metric, Sequence[Effect]]) -> str:
    """Which weight matters, for each direction."""
    parts = [
        f"{DIRECTION_TITLES[metric.direction]}: {_which_matter(found)}"
        for metric in _R1
        if (found := effects.get(metric, ()))
    ]
    if not parts:
        return ""
    subjects = next(found[0].subjects for found in effects.values() if found)
    return f"{title} ({subjects} subjects), R@1, each effect at 5 %. {'. '.join(parts)}."


def _which_matter(effects: Sequence[Effect]) -> str:
    parts = [
        f"the {EFFECTS[e.name]} matters ({p_equation(e.p)}, up to {e.spread:.1f} points)"
        for e in effects
        if e.p < LEVEL
    ]
    others = [EFFECTS[e.name] for e in effects if e.p >= LEVEL]
    if others:
        parts.append(f"no evidence of an effect of the {_joined_by_or(others)}, which is not evidence of no effect")
    return "; ".join(parts)


def _over_blocks(ranks: RankComparison) -> str:
    best = next(iter(ranks.mean_ranks))
    limit = ranks.mean_ranks[best] + ranks.critical_difference
    near = [name for name, rank in ranks.mean_ranks.items() if rank <= limit]
    blocks = f"Over {ranks.num_blocks} blocks the ranks"
    if ranks.p >= LEVEL:
        return f"{blocks} do not differ more than by chance (Friedman {p_equation(ranks.p)})."
    return (
        f"{blocks} differ (Friedman {p_equation(ranks.p)}); {best} ranks best, and {len(near) - 1} of the others do "
        "not differ from it significantly by Nemenyi's test."
    )


def _joined_by_or(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
