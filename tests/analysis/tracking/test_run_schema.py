from __future__ import annotations

import pytest

from analysis.tracking import run_schema

written = pytest.importorskip("runners.tracking.schema")


def test_names_are_those_that_the_driver_writes() -> None:
    assert set(run_schema.REQUIRED_CELL_TAGS) <= set(written.CELL_TAGS)
    assert {run_schema.TAG_REASON, run_schema.TAG_GIT_COMMIT, run_schema.TAG_PARENT} == {
        written.REASON,
        written.GIT_COMMIT,
        written.PARENT_RUN,
    }
    assert {run_schema.TAG_ROLE, *run_schema.SWEEP_TAGS} == set(written.SWEEP_TAGS)
    keys = {run_schema.TAG_OBJECTIVE, run_schema.TAG_OBJECTIVE_KEY, run_schema.TAG_SETTINGS_KEY}
    assert keys <= set(written.CELL_TAGS)
    assert written.TRIPLETS == run_schema.TAG_TRIPLETS
    assert run_schema.TRIPLETS_ARTIFACT == f"{written.TRIPLETS_FOLDER}/triplets.npz"
    assert run_schema.STATUSES == written.STATUSES
    assert {run_schema.ROLE_SWEEP, run_schema.ROLE_CELL} == {written.ROLE_SWEEP, written.ROLE_CELL}
    assert set(run_schema.TEST_METRICS) == {written.TEST_PREFIX + name for name in written.RECALLS}


def test_order_of_known_and_added_names() -> None:
    assert run_schema.in_order(["zed", "sig", "con", "ace", "sig"], run_schema.PAIRS) == ("con", "sig", "ace", "zed")
