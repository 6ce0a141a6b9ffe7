"""The section that compares a sweep with the paper: orders, verdicts on cells, ranks over blocks, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from analysis.blocks import Block, BlockKey
from analysis.published.numbers import NUM_RUNS, GridComparison, compare_blocks, published_blocks, published_key
from analysis.published.orders import PointOrder, order_agreement
from analysis.published.verdicts import VERDICTS
from analysis.report.inputs import Inputs
from analysis.report.parts import Section, TextTable
from analysis.report.published_tables import gradient_validation
from analysis.statistics.ranks import MIN_BLOCKS, rank_blocks
from analysis.wording import mean_text, p_equation, signed

_DIRECTIONS = {"i2t": "image → text", "t2i": "text → image", "both": "both"}


def published_section(inputs: Inputs) -> Section:
    """A sweep compared with the paper."""
    blocks, printed = inputs.as_printed, published_blocks()
    comparisons = compare_blocks(blocks, printed)
    orders = _orders_of(inputs.blocks, printed)
    nothing = "The paper has no finished block of this sweep, so only the order of the objectives is compared."
    tables = [_verdict_table(comparisons), *_rank_tables(comparisons), *map(_comparison_table, comparisons)]
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        warnings=() if comparisons else (nothing,),
        paragraphs=(
            *(_order_sentence(points) for points in orders if len(points) > 1),
            *((_verdict_sentence(comparisons),) if comparisons else ()),
        ),
        tables=(
            *map(_order_table, orders),
            *(tables if comparisons else ()),
            gradient_validation(blocks),
        ),
    )


def _verdict_sentence(comparisons: Sequence[GridComparison]) -> str:
    """For example "12 of 15 cells are within both spreads (3 equal as printed); 2 within noise, 1 higher."."""
    cells = sum(len(comparison.cells) for comparison in comparisons)
    within, equal = sum(c.num_within for c in comparisons), sum(c.count("equal") for c in comparisons)
    others = {verdict: sum(c.count(verdict) for c in comparisons) for verdict in list(VERDICTS)[2:]}
    rest = ", ".join(f"{number} {verdict}" for verdict, number in others.items() if number)
    meanings = "; ".join(f"{verdict}: {meaning}" for verdict, meaning in VERDICTS.items())
    return (
        f"{within} of {cells} cells are within both spreads ({equal} equal as printed){'; ' if rest else ''}{rest}. "
        f"The first of these applies: {meanings}."
    )


def _verdict_table(comparisons: Iterable[GridComparison]) -> TextTable:
    """A row for each block and metric: how many cells have which verdict, and the rank correlation."""
    others = [verdict for verdict in VERDICTS if verdict != "within both spreads"]
    rows = [
        (
            comparison.block.key.title,
            comparison.metric.label,
            f"{comparison.num_within} of {len(comparison.cells)}",
            *(str(comparison.count(verdict)) for verdict in others),
            signed(comparison.mean_difference),
            *("--" if value is None else f"{value:+z.2f}" for value in (comparison.spearman, comparison.kendall)),
        )
        for comparison in comparisons
    ]
    return TextTable(
        title="Verdicts",
        head=("block", "metric", "within both spreads", *others, "mean difference", "Spearman", "Kendall"),
        rows=tuple(rows),
        note="Numbers of cells; cells that are equal as printed are within both spreads too. Rank correlations are "
        "over the cells, of the paper's means as printed and this sweep's as measured, not rounded; -- with fewer than "
        "three cells or equal means on a side.",
        words=2,
    )


def _rank_tables(comparisons: Sequence[GridComparison]) -> list[TextTable]:
    """Mean ranks by each metric: over the compared blocks, in this sweep and the paper, and over all of the paper's."""
    tables = []
    published = {published_key(block.key): block for block in published_blocks()}
    for metric in dict.fromkeys(comparison.metric for comparison in comparisons):
        ours = [comparison.block for comparison in comparisons if comparison.metric == metric]
        sides = {
            "this sweep": ours,
            "paper, same blocks": [published[published_key(block.key)] for block in ours],
            "paper": list(published.values()),
        }
        ranks = {name: rank for name, side in sides.items() if (rank := rank_blocks(side, metric)) is not None}
        rows = [
            (name, *(f"{rank.mean_ranks[name]:.1f}" if name in rank.mean_ranks else "--" for rank in ranks.values()))
            for name in ranks["paper"].mean_ranks
        ]
        few = "" if "this sweep" in ranks else f" Fewer than {MIN_BLOCKS} blocks of this sweep are complete."
        differing = "; ".join(
            f"{name}: Friedman {p_equation(rank.p)}, critical difference {rank.critical_difference:.1f}"
            for name, rank in ranks.items()
        )
        tables.append(
            TextTable(
                title=f"Mean ranks over blocks: {metric.label}",
                head=("objective", *(f"{name} ({rank.num_blocks} blocks)" for name, rank in ranks.items())),
                rows=tuple(rows),
                note=f"Rank 1 is the best of its block. {differing} (Nemenyi, 5 %).{few}",
            )
        )
    return tables


def _comparison_table(comparison: GridComparison) -> TextTable:
    """A grid of the sweep and the paper: both means, their difference, and the verdict."""
    rows = [
        (
            "/".join(objective),
            *(mean_text(side.mean or 0.0, side.std) for side in (cell.ours, cell.theirs)),
            signed(cell.difference),
            str(cell.ours.n),
            cell.verdict,
        )
        for objective, cell in comparison.cells.items()
    ]
    return TextTable(
        title=f"{comparison.block.key.title}: {comparison.metric.title}",
        head=("objective", "ours", "paper", "difference", "n (ours)", "verdict"),
        rows=tuple(rows),
        note=f"{comparison.num_within} of {len(comparison.cells)} within both spreads; {NUM_RUNS} runs in the paper.",
    )


def _orders_of(blocks: Sequence[Block], printed: Sequence[Block]) -> list[tuple[PointOrder, ...]]:
    """How far each point orders the objectives as the paper does, for each model and stage that has numbers."""
    groups = groupby(blocks, key=lambda block: _model(block.key))
    return [orders for _, points in groups if (orders := order_agreement(list(points), printed))]


def _order_sentence(points: Sequence[PointOrder]) -> str:
    """Which point of a model comes nearest to the paper's order, and how far the others are."""
    said = ", ".join(f"{_label(point.block.key)} ({point.mean('both'):+z.2f})" for point in points)
    return (
        f"{_model(points[0].block.key).title}: the points of the sweep, ordered by how much they order the objectives "
        f"as the paper's tables do (mean rank correlation): {said}. No test is made."
    )


def _order_table(points: Sequence[PointOrder]) -> TextTable:
    """The rank correlations of a model's points with the printed grids."""
    rows = [(f"mean: {name}", *(f"{point.mean(way):+z.2f}" for point in points)) for way, name in _DIRECTIONS.items()]
    rows += [
        (
            f"{key.title}: {_DIRECTIONS[metric.direction]}",
            *(f"{point.agreement[key, metric]:+z.2f}" for point in points),
        )
        for key, metric in points[0].agreement
    ]
    return TextTable(
        title=f"Order of the objectives as in the paper: {_model(points[0].block.key).title}",
        head=("printed grid", *(_label(point.block.key) for point in points)),
        rows=tuple(rows),
        note="Spearman's rank correlation of this sweep's mean R@1 with the printed ones, and its means. Another "
        "dataset, model or number of epochs may give another order.",
    )


def _model(key: BlockKey) -> BlockKey:
    return replace(key, point="", variant="paper", grid="")


def _label(key: BlockKey) -> str:
    words = (key.point, f"{key.grid} grid" if key.grid else "")
    return ", ".join(filter(None, words)) or "all"
