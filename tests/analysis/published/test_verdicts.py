"""Verdicts on cells: their words on clear cases, and how often they are wrong on equal ones."""

from __future__ import annotations

import numpy as np
import pytest

from goal_sweep.analysis.blocks import CellSummary, Objective
from goal_sweep.analysis.published.comparison import compare_cells, verdict_of
from goal_sweep.sweeps.results import OBJECTIVES


def cell(mean: float, std: float | None = 0.3, n: int = 3) -> CellSummary:
    return CellSummary(mean=mean, std=std, n=n)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (cell(40.04), cell(40.0), "equal"),
        (cell(40.4), cell(40.0), "within noise"),
        (cell(40.2, 0.1), cell(40.0, 0.3), "within noise"),
        (cell(43.0), cell(40.0), "higher"),
        (cell(37.0), cell(40.0), "lower"),
        (cell(40.0, 0.0), cell(40.6, 0.0), "within noise"),  # one deviation of 0 is chance; the pooled one counts
        (cell(40.4, None, 1), cell(40.0), "not judged"),
    ],
)
def test_each_verdict(ours: CellSummary, theirs: CellSummary, verdict: str) -> None:
    others = {key: (cell(50.0), cell(50.0)) for key in OBJECTIVES[1:]}
    assert verdict_of(compare_cells({OBJECTIVES[0]: (theirs, ours), **others})[OBJECTIVES[0]]) == verdict


def test_one_seed_everywhere_is_not_judged_unless_equal() -> None:
    single = {OBJECTIVES[0]: (cell(40.0), cell(40.0, None, 1)), OBJECTIVES[1]: (cell(40.0), cell(45.0, None, 1))}
    assert [verdict_of(found) for found in compare_cells(single).values()] == ["equal", "not judged"]


def grid(rng: np.random.Generator, spreads: np.ndarray, runs: int = 3) -> dict[Objective, CellSummary]:
    """Cells of objectives that are all equal, from runs with these standard deviations."""
    values = 40 + spreads * rng.standard_normal((runs, len(OBJECTIVES)))
    return {
        key: cell(float(values[:, i].mean()), float(values[:, i].std(ddof=1)), runs) for i, key in enumerate(OBJECTIVES)
    }


@pytest.mark.parametrize(("noisy", "runs"), [(1.0, 2), (1.0, 3), (1.0, 5), (5.0, 3)])
def test_few_grids_of_equal_cells_have_a_false_verdict(noisy: float, runs: int) -> None:
    """At most 5 % of grids, also with one cell five times as noisy; 8 % leaves room for chance in 400 grids."""
    rng = np.random.default_rng(0)
    spreads = np.full(len(OBJECTIVES), 0.4)
    spreads[3] *= noisy
    false = 0
    for _ in range(400):
        ours, theirs = grid(rng, spreads, runs), grid(rng, spreads)
        cells = compare_cells({key: (theirs[key], ours[key]) for key in OBJECTIVES})
        verdicts = {verdict_of(found) for found in cells.values()}
        false += bool(verdicts & {"higher", "lower"})
    assert false / 400 <= 0.08
