"""Which point of a sweep orders the objectives as the paper does, against planted orders and planted noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.blocks import Block, BlockKey, CellSummary, Grid, Objective
from analysis.published.numbers import published_blocks
from analysis.published.orders import order_agreement
from sweeps.results import METRICS

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
    return Block(key=replace(MODEL, point=name), slug=name, protocol="", grids=grids)


def printed_means(sign: float = 1.0) -> dict[str, dict[Objective, float]]:
    return {
        metric.key: {key: 50 + sign * mean for key, mean in ONE[0].grids[metric.key].means.items()} for metric in BOTH
    }


def test_the_point_in_the_printed_order_is_the_best_and_the_reverse_is_rejected() -> None:
    same, reverse = order_agreement([point("tau 1", printed_means(), 0.1), point("tau 2", printed_means(-1), 0.1)], ONE)
    assert [one.value for one in same.agreement.values()] == pytest.approx([1.0, 1.0])
    assert [one.value for one in reverse.agreement.values()] == pytest.approx([-1.0, -1.0])
    assert same.mean["both"].high <= 1
    assert same.behind is None
    assert not same.rejected
    assert reverse.behind is not None
    assert reverse.behind.value == pytest.approx(-2.0)
    assert reverse.rejected


def test_correlations_are_those_of_the_means_with_every_printed_grid() -> None:
    random = np.random.default_rng(1)
    means = {
        metric.key: {key: float(random.normal(50, 5)) for key in ONE[0].grids[metric.key].cells} for metric in BOTH
    }
    (found,) = order_agreement([point("", means, 1.0)], PRINTED)
    assert len(found.agreement) == 20
    for (key, metric), estimate in found.agreement.items():
        grid = next(block for block in PRINTED if block.key == key).grids[metric.key]
        ours = [means[metric.key][objective] for objective in grid.means]
        assert estimate.value == pytest.approx(stats.spearmanr(ours, list(grid.means.values())).statistic)
    values = {
        name: [e.value for (_, m), e in found.agreement.items() if m.direction == name] for name in ("i2t", "t2i")
    }
    assert found.mean["i2t"].value == pytest.approx(np.mean(values["i2t"]))
    assert found.mean["both"].value == pytest.approx(np.mean([*values["i2t"], *values["t2i"]]))


def test_a_point_that_shares_every_training_with_the_best_is_not_behind_it() -> None:
    """The same trainings have the same noise, so the interval of their difference has no width."""
    one, other = order_agreement([point("tau 1", printed_means(), 2.0), point("tau 2", printed_means(), 2.0)], ONE)
    assert one.mean["both"].low < one.mean["both"].value
    assert other.behind is not None
    assert (other.behind.low, other.behind.high) == pytest.approx((0.0, 0.0))
    assert not other.rejected


def test_equal_points_with_own_noise_are_seldom_rejected() -> None:
    """Points of one truth, each measured with its own noise: at most about 5 % may be rejected by chance."""
    random, spread, rejected = np.random.default_rng(2), 1.0, 0
    truth = printed_means()
    for _ in range(60):
        measured = [
            {key: {o: m + random.normal(0, spread / 3**0.5) for o, m in cells.items()} for key, cells in truth.items()}
            for _ in range(2)
        ]
        found = order_agreement([point(f"tau {i}", means, spread) for i, means in enumerate(measured)], ONE)
        rejected += sum(one.rejected for one in found)
    assert rejected <= 6


def test_points_without_enough_numbers_are_left_out() -> None:
    few = {key: dict(list(cells.items())[:2]) for key, cells in printed_means().items()}
    assert order_agreement([point("tau 1", few, 0.1)], ONE) == ()
