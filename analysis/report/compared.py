"""The section that compares a sweep with the paper: verdicts on cells, ranks over blocks, and grids cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analysis.blocks import Block, change_text, mean_text, p_equation
from analysis.published import NUM_RUNS, VERDICTS, GridComparison, PointOrder, published_blocks, published_key
from analysis.report.document import Section
from analysis.report.orders import order_sentences, order_tables
from analysis.report.published_tables import gradient_validation, state_of_the_art
from analysis.report.tables import TextTable
from analysis.statistics import MIN_BLOCKS, rank_blocks


def published_section(
    blocks: Sequence[Block], comparisons: Sequence[GridComparison], orders: Sequence[Sequence[PointOrder]]
) -> Section:
    """A sweep compared with the paper: orders, verdicts, ranks, grids cell by cell, and the paper's other tables.

    Args:
        blocks: the blocks at the first value of every axis.
        comparisons: of these blocks with the printed ones of the same model.
        orders: of each model and stage, how far each point orders the objectives as the paper does.
    """
    tables = [_verdict_table(comparisons), *_rank_tables(comparisons), *map(_comparison_table, comparisons)]
    return Section(
        anchor="published",
        title="Compared with the published numbers",
        paragraphs=(*order_sentences(orders), *((_verdict_sentence(comparisons),) if comparisons else ())),
        tables=(
            *(table for points in orders for table in order_tables(points)),
            *(tables if comparisons else ()),
            state_of_the_art(blocks),
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
    rows = [
        (
            comparison.block.key.title,
            comparison.metric.label,
            f"{comparison.num_within} of {len(comparison.cells)}",
            *(str(comparison.count(verdict)) for verdict in VERDICTS if verdict != "within both spreads"),
            change_text(comparison.mean_difference),
            *("--" if value is None else f"{value:+z.2f}" for value in (comparison.spearman, comparison.kendall)),
        )
        for comparison in comparisons
    ]
    others = (verdict for verdict in VERDICTS if verdict != "within both spreads")
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
            mean_text(cell.ours.mean or 0.0, cell.ours.std),
            mean_text(cell.theirs.mean or 0.0, cell.theirs.std),
            change_text(cell.difference),
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
