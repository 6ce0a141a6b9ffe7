"""Curves: the numbers, and the seeds they are of."""

from __future__ import annotations

import pandas as pd
import pytest

from goal_sweep.analysis.figures.training import draw_curves
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics import curves as module
from goal_sweep.analysis.statistics.curves import curves, drawn_runs
from tests.helpers.results_cases import SweepWriter, of_epochs


def of_two() -> SweepResults:
    """Two seeds of con/con and one of sig/cir, with their epochs."""
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir", "lin/nca"])
    for seed in (1, 2):
        writer.write("con/con", seed, epochs=of_epochs(2) | {"epochs/val/rsum": [10.0 * seed, 30.0]})
    writer.write("sig/cir", 1, epochs=of_epochs(1))
    writer.write("lin/nca", 1, epochs={})
    return writer.results()


def test_a_curve_is_the_mean_and_the_range_over_the_seeds_that_have_the_epoch() -> None:
    results = of_two()
    found = curves(results.counted, results.epochs(results.counted, ["val/rsum"]), "val/rsum")
    assert set(found) == {("con", "con"), ("sig", "cir")}
    curve = found["con", "con"]
    assert curve.to_dict("list") == {"epoch": [1, 2], "mean": [15, 30], "min": [10, 30], "max": [20, 30]}
    figure = draw_curves("block", {"val rsum": found}, {("con", "con"): "best, baseline"}, warmup=1)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines[:2]] == ["others", "con/con (best, baseline)"]
    assert len(axes.lines) == 3  # the curves, and where the warm-up ends
    assert len(axes.collections) == 1  # the band of the one that stands out


def test_many_seeds_are_drawn_as_the_first(complete: SweepResults, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(drawn_runs(complete)) == 90
    monkeypatch.setattr(module, "MAX_SEEDS", 2)
    drawn: pd.DataFrame = drawn_runs(complete)
    assert set(drawn["seed"]) == {1, 2}
    assert len(drawn) == 60
