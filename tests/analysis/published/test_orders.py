"""Which point of a sweep orders the objectives as the paper does, against planted orders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from goal_sweep.analysis.blocks import Block, BlockKey, CellSummary, Grid, Objective
from goal_sweep.analysis.published.comparison import order_agreement, orders_by_chance
from goal_sweep.analysis.published.numbers import published_blocks
from goal_sweep.sweeps.results import METRICS

MODEL = BlockKey(
    dataset="emoji", framework="vsepp", backbone="lite", stage="frozen", variant="paper", data_fingerprint="ab"
)
PRINTED = published_blocks()
ONE = PRINTED[:1]
BOTH = (METRICS["i2t_r1"], METRICS["t2i_r1"])


def point(name: str, means: Mapping[str, Mapping[Objective, float]], std: float) -> Block:
    """A block at a point of the axes, with these means over three seeds and one deviation."""
    grids = {
        metric.key: Grid(
            metric=metric,
            cells={key: CellSummary(mean=mean, std=std, n=3) for key, mean in means[metric.key].items()},
        )
        for metric in BOTH
    }
    return Block(key=replace(MODEL, point=name), protocol="", grids=grids)


def printed_means(sign: float = 1.0) -> dict[str, dict[Objective, float]]:
    return {
        metric.key: {key: 50 + sign * mean for key, mean in ONE[0].grids[metric.key].means.items()} for metric in BOTH
    }


def test_the_printed_order_agrees_and_the_reverse_is_its_opposite() -> None:
    assert list(order_agreement(point("tau 1", printed_means(), 0.1), ONE).values()) == pytest.approx([1.0, 1.0])
    assert list(order_agreement(point("tau 2", printed_means(-1), 0.1), ONE).values()) == pytest.approx([-1.0, -1.0])


def test_correlations_are_those_of_the_means_with_every_printed_grid() -> None:
    random = np.random.default_rng(1)
    means = {
        metric.key: {key: float(random.normal(50, 5)) for key in ONE[0].grids[metric.key].cells} for metric in BOTH
    }
    found = order_agreement(point("", means, 1.0), PRINTED)
    assert len(found) == 20
    for (key, metric), value in found.items():
        grid = next(block for block in PRINTED if block.key == key).grids[metric.key]
        ours = [means[metric.key][objective] for objective in grid.means]
        assert value == pytest.approx(stats.spearmanr(ours, list(grid.means.values())).statistic)


def test_the_printed_order_with_permuted_weights_agrees_by_chance_as_far_as_readings_do() -> None:
    assert orders_by_chance(PRINTED) == pytest.approx((-0.61, 0.62), abs=0.01)


def test_the_printed_grids_agree_with_one_another_as_the_document_says() -> None:
    grids = [list(grid.means.values()) for block in PRINTED for grid in block.grids.values()]
    agreement = stats.spearmanr(np.transpose(grids)).statistic[np.triu_indices(len(grids), 1)].mean()
    assert agreement == pytest.approx(0.61, abs=0.005)


def test_too_few_numbers_have_no_order() -> None:
    few = {key: dict(list(cells.items())[:2]) for key, cells in printed_means().items()}
    assert order_agreement(point("tau 1", few, 0.1), ONE) == {}
