"""The chapter on what the differences are worth: words first, then effects, intervals and ranks, each with its n."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from analysis.figures.rank_diagram import draw_rank_diagram
from analysis.report.chapter import Chapter, FigureLink
from analysis.report.manifest import ReportFolder
from analysis.report.sections import TextTable
from analysis.report.verdict import block_verdict, stage_verdict
from analysis.statistics.aggregate import of_block
from analysis.statistics.bootstrap import MIN_FREE, Interval, difference_intervals
from analysis.statistics.effects import EFFECTS, Effect, factor_effects, subjects_of, whole_subjects
from analysis.statistics.ranks import MIN_BLOCKS, RankComparison, rank_objectives
from analysis.tracking import run_schema as schema
from analysis.tracking.blocks import Block, direction_title

_BLOCK = ("dataset", "framework", "backbone", "variant", "data_fingerprint")
_SHOWN: tuple[tuple[str, str], ...] = (("i2t", "R@1"), ("t2i", "R@1"), schema.RSUM)
_EFFECT_NOTE = (
    "Repeated-measures analysis of variance: the same subjects (seeds of one block; blocks, averaged over seeds, where "
    "several are pooled) under every objective. p assumes normal differences and sphericity; p (lower bound) does not "
    "assume sphericity and is what the words above go by. Partial η² is the effect's share of effect plus its error, "
    "with a 95 % interval from the noncentral F; with few subjects it is biased upwards. Points: highest minus lowest "
    "level mean; for the interaction, the largest deviation of a cell from its row plus its column."
)
_INTERVAL_NOTE = (
    "Mean over blocks of objective minus con/con, paired by seed. 95 % percentile bootstrap of 4,000 draws, "
    "stratified: each draw keeps every block and resamples its seeds (n - 1 of n, Rao & Wu 1988). Speaks of other "
    "seeds of these blocks, not of other blocks. In simulations with as few seeds as here it covered 90 to 93 %."
)


def significance_chapter(
    blocks: Sequence[Block], runs: pd.DataFrame, differences: pd.DataFrame, folder: ReportFolder
) -> Chapter | None:
    """Words, effects, intervals and ranks of a sweep.

    Args:
        blocks: its blocks.
        runs: its runs that count.
        differences: what `paired_differences` gives for them.
        folder: where the rank diagrams go.

    Returns:
        None when no block has two objectives.
    """
    words = [text for block in blocks if (text := block_verdict(block))]
    if not words:
        return None
    figures: list[FigureLink] = []
    tables: list[TextTable] = []
    for stage, here in runs.groupby("stage", sort=False):
        groups = _effects(blocks, here, str(stage))
        of_stage = differences[differences["stage"] == stage]
        ranks = {column: _ranks(here, column) for column in _SHOWN}
        said = [(title, effects["i2t", "R@1"]) for title, effects in groups]
        words += _left_out(blocks, here, str(stage))
        words.append(stage_verdict(str(stage), of_stage, said, ranks["i2t", "R@1"]))
        tables += [_effect_table(title, effects) for title, effects in groups if any(effects.values())]
        tables += _interval_tables(here, str(stage))
        for column, comparison in ranks.items():
            if comparison is not None:
                figures.append(_diagram(comparison, str(stage), column, folder))
                tables.append(_rank_table(comparison, str(stage), column))
    num_blocks = runs.groupby("stage").apply(lambda part: part.groupby(list(_BLOCK)).ngroups).max()
    if num_blocks < MIN_BLOCKS:
        words.append(f"Ranks over blocks need at least {MIN_BLOCKS} of one stage; there {_count(int(num_blocks))}.")
    if not any(table.note == _INTERVAL_NOTE for table in tables):
        words.append(
            f"Bootstrap intervals are left out: below {MIN_FREE} runs beyond the first of each block they would be "
            "narrower than they say. The t intervals under the differences from con/con hold for few seeds."
        )
    return Chapter(
        anchor="significance",
        title="What the differences are worth",
        paragraphs=tuple(words),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def published_significance(blocks: Sequence[Block]) -> dict[tuple[str, str], RankComparison]:
    """Ranks of the objectives over published blocks, by direction and metric, where there are enough blocks."""
    found = {}
    for column in dict.fromkeys(column for block in blocks for column in block.grids):
        rows = {
            block.slug: {f"{pair}/{triplet}": cell.mean for (pair, triplet), cell in block.grids[column].cells.items()}
            for block in blocks
            if column in block.grids
        }
        comparison = rank_objectives(pd.DataFrame(rows).T.astype(float))
        if comparison is not None:
            found[column] = comparison
    return found


def _effects(
    blocks: Sequence[Block], runs: pd.DataFrame, stage: str
) -> list[tuple[str, dict[tuple[str, str], tuple[Effect, ...]]]]:
    """Effects within each block of a stage, and over its blocks when there are three or more."""
    groups = []
    here = [block for block in blocks if block.key.stage == stage and not block.is_empty]
    for block in here:
        part = of_block(runs, block.key)
        effects = {c: factor_effects(subjects_of(part, schema.metric_key(*c), ["seed"])) for c in _SHOWN}
        groups.append((f"{block.key.title}, over seeds", effects))
    if len(here) >= MIN_BLOCKS:
        effects = {c: factor_effects(subjects_of(runs, schema.metric_key(*c), _BLOCK)) for c in _SHOWN}
        groups.append((f"Stage {stage}, over blocks", effects))
    return groups


def _left_out(blocks: Sequence[Block], runs: pd.DataFrame, stage: str) -> list[str]:
    """A sentence for each block of whose seeds the effects cannot use all."""
    said = []
    for block in blocks:
        if block.key.stage != stage or block.is_empty:
            continue
        grid = next(iter(block.grids.values()))
        lacking = {gap.seed for cell in grid.cells.values() for gap in cell.gaps}
        if not lacking:
            continue
        part = subjects_of(of_block(runs, block.key), schema.metric_key(*_SHOWN[0]), ["seed"])
        whole, num_objectives = whole_subjects(part)
        used = f"of {whole} seeds and the {num_objectives} objectives that they share" if whole > 1 else "left out"
        said.append(
            f"{block.key.title}: {len(lacking)} of its seeds lack an objective, so the effects of the pair and the "
            f"triplet weights are {used}."
        )
    return said


def _effect_table(title: str, effects: dict[tuple[str, str], tuple[Effect, ...]]) -> TextTable:
    rows = [
        (
            _column(*column),
            EFFECTS[e.name],
            f"{e.spread:.1f}",
            f"F({e.df:g}, {e.df_error:g}) = {e.f:.2f}",
            f"{e.p:.2g}",
            f"{e.p_corrected:.2g}",
            f"{e.partial_eta_squared:.2f} {_interval(e)}".strip(),
            str(e.subjects),
        )
        for column, found in effects.items()
        for e in found
    ]
    head = ("metric", "effect", "points", "F", "p", "p (lower bound)", "partial η²", "n subjects")
    return TextTable(title=f"Effects: {title}", head=head, rows=tuple(rows), note=_EFFECT_NOTE, words=2)


def _interval(effect: Effect) -> str:
    return "" if math.isnan(effect.eta_low) else f"[{effect.eta_low:.2f}, {effect.eta_high:.2f}]"


def _interval_tables(runs: pd.DataFrame, stage: str) -> list[TextTable]:
    tables = []
    for column in _SHOWN:
        intervals = difference_intervals(runs, schema.metric_key(*column), schema.BASELINE, _BLOCK)
        if intervals:
            ordered = sorted(intervals.items(), key=lambda item: -item[1].mean)
            tables.append(
                TextTable(
                    title=f"Bootstrap intervals: {_column(*column)}, stage {stage}",
                    head=("objective", "difference from con/con", "95 % interval", "blocks", "runs"),
                    rows=tuple(_interval_row("/".join(key), interval) for key, interval in ordered),
                    note=_INTERVAL_NOTE,
                )
            )
    return tables


def _interval_row(name: str, interval: Interval) -> tuple[str, ...]:
    reach = f"[{interval.low:+.2f}, {interval.high:+.2f}]"
    return (name, f"{interval.mean:+.2f}", reach, str(interval.blocks), str(interval.runs))


def _ranks(runs: pd.DataFrame, column: tuple[str, str]) -> RankComparison | None:
    means = runs.groupby([*_BLOCK, "pair", "triplet"])[schema.metric_key(*column)].mean().unstack(["pair", "triplet"])
    means.columns = ["/".join(map(str, key)) for key in means.columns]
    return rank_objectives(means)


def _diagram(comparison: RankComparison, stage: str, column: tuple[str, str], folder: ReportFolder) -> FigureLink:
    stem = f"figures/ranks-{stage}-{'-'.join(column).replace('@', '').lower()}"
    title = f"{_column(*column)} over {comparison.num_blocks} blocks, stage {stage}"
    figure = draw_rank_diagram(comparison, title)
    for suffix in ("pdf", "svg", "png"):
        figure.savefig(folder.path(f"{stem}.{suffix}"), dpi=150, metadata={"Date": None} if suffix == "svg" else None)
    return FigureLink(
        path=f"{stem}.png",
        title=f"Critical-difference diagram: {title}",
        note="Mean rank over blocks, 1 is best. A bar joins objectives that Nemenyi's test does not tell apart at 5 %. "
        + _friedman(comparison),
    )


def _rank_table(comparison: RankComparison, stage: str, column: tuple[str, str]) -> TextTable:
    best = next(iter(comparison.mean_ranks))
    rows = tuple(
        (name, f"{rank:.2f}", "--" if name == best else f"{comparison.p_between(best, name):.2g}")
        for name, rank in comparison.mean_ranks.items()
    )
    return TextTable(
        title=f"Ranks over blocks: {_column(*column)}, stage {stage}",
        head=("objective", "mean rank", f"p against {best} (Nemenyi)"),
        rows=rows,
        note=_friedman(comparison),
    )


def _friedman(comparison: RankComparison) -> str:
    k = len(comparison.mean_ranks)
    few = " An approximation that needs more blocks than this." if comparison.num_blocks < 10 else ""
    return (
        f"Friedman: chi-squared({k - 1}) = {comparison.friedman:.1f}, p = {comparison.p:.2g}, "
        f"n = {comparison.num_blocks} blocks, {k} objectives; critical difference "
        f"{comparison.critical_difference:.2f}.{few}"
    )


def _column(direction: str, metric: str) -> str:
    return metric if (direction, metric) == schema.RSUM else f"{direction_title(direction)} {metric}"


def _count(number: int) -> str:
    return f"is {number}" if number == 1 else f"are {number}"
