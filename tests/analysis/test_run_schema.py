from __future__ import annotations

import pytest

from analysis import run_schema

written = pytest.importorskip("runners.tracking.schema")


def test_names_are_those_that_the_driver_writes() -> None:
    assert set(run_schema.REQUIRED_CELL_TAGS) <= set(written.CELL_TAGS)
    assert {run_schema.TAG_REASON, run_schema.TAG_GIT_COMMIT} == {written.REASON, written.GIT_COMMIT}
    assert {run_schema.TAG_ROLE, *run_schema.SWEEP_TAGS} == set(written.SWEEP_TAGS)
    keys = {run_schema.TAG_OBJECTIVE, run_schema.TAG_OBJECTIVE_KEY, run_schema.TAG_SETTINGS_KEY}
    assert keys <= set(written.CELL_TAGS)
    assert written.TRIPLETS == run_schema.TAG_TRIPLETS
    assert (written.POINT, written.ANY_VALUE) == (run_schema.TAG_POINT, run_schema.ANY_VALUE)
    assert written.AXES == run_schema.TAG_AXES
    assert written.BELOW_WARMUP == run_schema.TAG_BELOW_WARMUP
    assert written.WEAK == run_schema.TAG_WEAK
    assert written.STACKED == run_schema.TAG_STACKED
    assert written.IMPORTED == run_schema.TAG_IMPORTED
    assert run_schema.TRIPLETS_ARTIFACT == f"{written.TRIPLETS_FOLDER}/triplets.npz"
    assert run_schema.STATUSES == written.STATUSES
    assert {run_schema.ROLE_SWEEP, run_schema.ROLE_CELL} == {written.ROLE_SWEEP, written.ROLE_CELL}
    assert set(run_schema.TEST_METRICS) == {written.TEST_PREFIX + name for name in written.RECALLS}
    assert (written.SELECTED_PREFIX, written.GIT_DIFF) == (run_schema.SELECTED_PREFIX, run_schema.TAG_GIT_DIFF)
    assert set(run_schema.METRICS) == set(written.RECALLS)


def test_names_of_a_tuned_sweep_are_those_that_the_driver_writes() -> None:
    if not hasattr(written, "GRID"):
        pytest.skip("the driver does not tune")
    assert (written.ROLE_CANDIDATE, written.CANDIDATE) == (run_schema.ROLE_CANDIDATE, run_schema.TAG_CANDIDATE)
    assert (written.GRID, written.NO_GRID) == (run_schema.TAG_GRID, run_schema.GRID_FORMER)
    assert written.TRAIL_FILE == run_schema.TUNING_ARTIFACT


def test_a_metric_has_its_words_from_its_key() -> None:
    metric = run_schema.METRICS["t2i_r10"]
    assert (metric.test, metric.selected) == ("test/t2i_r10", "selected/val_t2i_r10")
    assert (metric.label, metric.title) == ("t2i R@10", "Text → Image R@10")
    assert (metric.direction, metric.name, metric.maximum) == ("t2i", "R@10", 100)
    assert (run_schema.RSUM.test, run_schema.RSUM.title, run_schema.RSUM.maximum) == ("test/rsum", "rsum", 600)
    assert list(run_schema.METRICS) == ["i2t_r1", "t2i_r1", "i2t_r5", "t2i_r5", "i2t_r10", "t2i_r10", "rsum"]


def test_order_of_known_and_added_names() -> None:
    assert run_schema.in_order(["zed", "sig", "con", "ace", "sig"], run_schema.PAIRS) == ("con", "sig", "ace", "zed")
