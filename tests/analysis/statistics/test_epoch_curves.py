"""Curves and costs: the numbers, and the seeds they are of."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.figures import draw_curves
from analysis.statistics import costs, curves, drawn_runs, runs_without, seeds_note
from analysis.statistics.epoch_curves import MAX_SEEDS
from analysis.tracking import fetch_runs
from tests.helpers.analysis_cases import SweepWriter


def runs_frame(*rows: tuple[str, str, str, int]) -> pd.DataFrame:
    frame = pd.DataFrame(list(rows), columns=["run_id", "pair", "triplet", "seed"])
    return frame.assign(run_name=frame["run_id"] + " name")


def history_frame(*rows: tuple[str, str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=["run_id", "metric", "step", "value"])


RUNS = runs_frame(("a", "con", "con", 1), ("b", "con", "con", 2), ("c", "sig", "cir", 1), ("d", "lin", "nca", 1))


def test_a_curve_is_the_mean_and_the_range_over_the_seeds_that_have_the_epoch() -> None:
    history = history_frame(
        ("a", "val/rsum", 1, 10.0),
        ("b", "val/rsum", 1, 20.0),
        ("a", "val/rsum", 2, 30.0),
        ("c", "val/rsum", 1, 5.0),
        ("a", "train/active", 1, 0.5),
    )
    found = curves(RUNS, history, "val/rsum")
    assert set(found) == {("con", "con"), ("sig", "cir")}
    curve = found["con", "con"]
    assert (curve.epochs, curve.mean) == ((1, 2), (15.0, 30.0))
    assert (curve.low, curve.high) == ((10.0, 30.0), (20.0, 30.0))
    assert runs_without(RUNS, history, ["val/rsum"]) == ["d name"]
    figure = draw_curves("block", {"val rsum": found}, {("con", "con"): "best, baseline"}, warmup=1)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines[:2]] == ["others", "con/con (best, baseline)"]
    assert len(axes.lines) == 3  # the curves, and where the warm-up ends
    assert len(axes.collections) == 1  # the band of the one that stands out


def test_costs_are_sums_over_epochs_and_means_over_seeds() -> None:
    history = history_frame(
        *((run, "time/train_s", epoch, seconds) for run, seconds in (("a", 2.0), ("b", 4.0)) for epoch in (1, 2)),
        *((run, "time/val_s", 1, 1.0) for run in "ab"),
        *((run, "time/step_ms", epoch, 5.0) for run in "ab" for epoch in (1, 2)),
        *(("a", "time/data_wait_share", epoch, share) for epoch, share in ((1, 0.2), (2, 0.4))),
    )
    (row,) = costs(RUNS, history).to_dict("records")
    assert (row["pair"], row["n"], row["epochs"], row["train_s"], row["val_s"], row["step_ms"]) == (
        ("con", 2, 2.0, 6.0, 1.0, 5.0)
    )
    assert row["data_wait"] == pytest.approx(0.3)  # of the run that says it
    assert row["train_s_std"] == pytest.approx(8**0.5)
    assert costs(RUNS, history_frame()).empty


@pytest.mark.integration
def test_many_seeds_are_drawn_as_the_first_ten(complete_sweep: SweepWriter) -> None:
    sweep = fetch_runs(complete_sweep.uri, "complete")
    assert len(drawn_runs(sweep)) == 90
    assert seeds_note(sweep) == ""
    assert MAX_SEEDS == 10
    assert set(drawn_runs(sweep, 2)["seed"]) == {1, 2}
    assert seeds_note(sweep, 2) == "Of each objective's 3 seeds, the first 2 are shown."
