"""Weights on their own, against data of known effects."""

import numpy as np
import pandas as pd
import pytest

from goal_sweep.analysis.statistics.comparison import crossed, studentized, weigh
from goal_sweep.goal_core.evaluation.metrics import OBJECTIVES, PAIRS, TRIPLETS

GENERATOR = np.random.default_rng(7)
COLUMNS = pd.MultiIndex.from_tuples(OBJECTIVES)


def values(seeds: int = 3, spread: float = 1.0, **shifts: float) -> pd.DataFrame:
    """Runs of all objectives, shifted by weights or by ``sig_cir``."""
    frame = pd.DataFrame(50 + spread * GENERATOR.normal(size=(seeds, 15)), columns=COLUMNS)
    for pair, triplet in OBJECTIVES:
        frame[pair, triplet] += sum(shifts.get(name, 0.0) for name in (pair, triplet, f"{pair}_{triplet}"))
    return frame + 3 * GENERATOR.normal(size=(seeds, 1))


def test_a_weight_is_averaged_within_each_seed_and_compared() -> None:
    runs = values(spread=0.1, cir=-8.0)
    found = weigh(runs)
    of_seeds = np.mean([runs[pair, "cir"] for pair in PAIRS], axis=0)
    cell = found.levels["triplet", "cir"]
    assert (cell.mean, cell.std) == pytest.approx((of_seeds.mean(), of_seeds.std(ddof=1)))
    assert cell.n == 3
    assert list(found.levels) == [*(("pair", name) for name in PAIRS), *(("triplet", name) for name in TRIPLETS)]
    cost = found.comparisons["triplet"].differences["cir", "con"]
    assert cost.verdict == "worse"
    assert cost.estimate == pytest.approx(-8.0, abs=0.3)
    assert found.comparisons["triplet"].differences["nca", "con"].verdict == "not significant"


def test_an_interaction_is_found_beside_main_effects() -> None:
    assert weigh(values(sig_cir=12.0)).comparisons["interaction"].smallest_p < 0.01
    assert weigh(values(sig=9.0, cir=-5.0)).comparisons["interaction"].smallest_p > 0.01


def test_test_images_widen_the_intervals_of_weights() -> None:
    runs, images = values(spread=0.2, cir=-3.0), pd.DataFrame(4.0 * np.eye(15), COLUMNS, COLUMNS)
    alone, both = (weigh(runs, own).comparisons for own in (None, images))
    for name, comparison in both.items():
        off = ~np.eye(len(comparison.names), dtype=bool)
        assert (comparison.reach[off] > alone[name].reach[off]).all(), name
    # The mean over five pair weights of independent noise of variance 4, on both sides of a difference.
    (after, before), (_, q) = (
        (own["triplet"].differences["cir", "con"].reach for own in (both, alone)),
        studentized(3, 4),
    )
    assert after**2 - before**2 == pytest.approx(q**2 / 2 * 2 * 4 / 5)


def test_a_seed_that_lacks_a_cell_is_left_out_of_its_row_and_column_alone() -> None:
    runs = values()
    runs.loc[1, ("sig", "cir")] = np.nan
    found = weigh(runs)
    assert {name: cell.n for (factor, name), cell in found.levels.items() if factor == "pair"} == {
        **dict.fromkeys(PAIRS, 3),
        "sig": 2,
    }
    assert found.levels["triplet", "cir"].n == 2
    assert set(found.comparisons["interaction"].counts) == {2}


def test_what_is_not_combined_with_every_other_weight_is_left_out() -> None:
    assert crossed([*OBJECTIVES, ("con", "own")]) == list(OBJECTIVES)
    square = [(pair, triplet) for pair in ("con", "sig") for triplet in ("con", "nca")]
    assert crossed([*square, ("infonce", "loss")]) == square
    assert len(crossed([("con", "con"), ("sig", "cir")])) == 1
    assert not weigh(values()[[("con", "con"), ("sig", "cir")]]).levels
