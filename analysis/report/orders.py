"""What a report says of the order of the objectives beside that of the paper's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from analysis.blocks import Block, BlockKey
from analysis.published import Estimate, PointOrder, order_agreement, published_blocks
from analysis.report.tables import TextTable

_DIRECTIONS = {"i2t": "image → text", "t2i": "text → image", "both": "both"}


def orders_of(blocks: Sequence[Block]) -> list[tuple[PointOrder, ...]]:
    """How far each point orders the objectives as the paper does, for each model and stage that has numbers."""
    printed = published_blocks()
    found = (
        order_agreement(list(points), printed) for _, points in groupby(blocks, key=lambda block: _model(block.key))
    )
    return [orders for orders in found if orders]


def order_sentences(orders: Sequence[Sequence[PointOrder]]) -> list[str]:
    """For each model with several points, which of them the paper's order rejects and which it cannot tell apart."""
    return [_sentence(points) for points in orders if len(points) > 1]


def order_tables(points: Sequence[PointOrder]) -> list[TextTable]:
    """The mean rank correlations of a model's points, and those with every printed grid."""
    model = _model(points[0].block.key).title
    means = TextTable(
        title=f"Order of the objectives as in the paper: {model}",
        head=("", "point", *_DIRECTIONS.values(), "behind the best", "verdict"),
        rows=tuple(
            (
                str(number),
                _label(one.block.key),
                *(_text(one.mean[direction]) for direction in _DIRECTIONS),
                "--" if one.behind is None else _text(one.behind),
                "best" if one.behind is None else "rejected" if one.rejected else "not told apart",
            )
            for number, one in enumerate(points, start=1)
        ),
        words=2,
        note=f"Spearman's rank correlation of this sweep's mean R@1 with the printed ones, mean over the "
        f"{len(points[0].agreement) // 2} printed grids of a direction, or of all. In brackets the 95 % interval from "
        "the noise of the trainings on both sides; that of the last difference is corrected for the number of points. "
        "Noise is all that the interval has: another dataset or model may give another order.",
    )
    grids = TextTable(
        title=f"Rank correlation with each printed grid: {model}",
        head=("printed grid", *(str(number) for number in range(1, len(points) + 1))),
        rows=tuple(
            (f"{key.title}: {_DIRECTIONS[metric.direction]}", *(_text(one.agreement[key, metric]) for one in points))
            for key, metric in points[0].agreement
        ),
        note="The columns are the points of the table above.",
    )
    return [means, grids]


def _sentence(points: Sequence[PointOrder]) -> str:
    best = next(one for one in points if one.behind is None)
    rejected = [_label(one.block.key) for one in points if one.rejected]
    level = [_label(one.block.key) for one in points if one.behind is not None and not one.rejected]
    said = [
        f"{_model(best.block.key).title}: of {len(points)} points, {_label(best.block.key)} orders the objectives most "
        f"like the paper's tables (mean rank correlation {_text(best.mean['both'])})",
        *([f"not told apart from it: {', '.join(level)}"] if level else []),
        *([f"rejected, because noise does not explain the distance: {', '.join(rejected)}"] if rejected else []),
    ]
    return "; ".join(said) + "."


def _model(key: BlockKey) -> BlockKey:
    return replace(key, point="", variant="paper", grid="")


def _label(key: BlockKey) -> str:
    words = (key.point, f"{key.grid} grid" if key.grid else "")
    return ", ".join(word for word in words if word) or "all"


def _text(estimate: Estimate) -> str:
    return f"{estimate.value:+z.2f} [{estimate.low:+z.2f}, {estimate.high:+z.2f}]"
