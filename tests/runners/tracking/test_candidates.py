"""What MLflow holds of a sweep that tunes: candidates apart from what reports, and the grids."""

from __future__ import annotations

from dataclasses import replace

import pytest
from goal_sweep.runners.tracking.sync import SweepTracking

from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.sweeps import ResolvedSweep
from tests.helpers.mlflow_cases import Content
from tests.helpers.store_cases import record, result, write_weights
from tests.helpers.tuning_cases import searched, tuned


def _sweep(best: int, uri: str, store: Store) -> ResolvedSweep:
    """A sweep whose search chose one of three candidates, with all its trainings done."""
    sweep = tuned("objectives={only: [sig/cir]}", "seeds=[1]", f"tracking={uri}", budget=3)
    sweep = searched(sweep, lambda one: float(one.number == best))
    for training in sweep.trainings:
        folder = store.folder(training)
        if folder.result() is None:
            folder.claim("L")
            folder.save_with("best-3.safetensors", write_weights)
            folder.write_metrics([record(epoch) for epoch in (1, 2, 3)])
            ended = result(3)
            if training.number is not None:
                ended["metrics"] = {"val/rsum": 30.0}
            folder.finish(ended)
    return sweep


def _synced(uri: str, sweep: ResolvedSweep, store: Store) -> Content:
    with SweepTracking(sweep, store) as tracking:
        assert tracking.sync_all(wait=60)
        assert tracking.trouble == ""
    return Content(uri, "quickstart")


@pytest.mark.integration
def test_candidates_have_their_role_and_no_test_number_and_the_grids_are_tagged(uri: str, store: Store) -> None:
    content = _synced(uri, _sweep(2, uri, store), store)
    candidates = [run for run in content.runs if run.data.tags[names.ROLE] == "candidate"]
    assert len(candidates) == 3
    assert not [name for run in candidates for name in run.data.metrics if name.startswith("test/")]
    assert {run.data.metrics["selected/val_rsum"] for run in candidates} == {30.0}
    assert all(names.GRID not in run.data.tags for run in candidates)
    assert sorted(run.data.tags[names.GRID] for run in content.children) == ["default", "tuned"]
    # The sweep now chooses another candidate; the earlier choice is in no grid any more.
    other = _sweep(0, uri, store)
    content = _synced(uri, other, store)
    assert [run.data.tags[names.GRID] for run in content.children] == ["default,tuned"]
    assert sum(run.data.tags[names.ROLE] == names.FORMER for run in content.runs) == 1
    # Without the search, a run has no grid.
    plain = replace(other, config=replace(other.config, tune=None), trails=())
    content = _synced(uri, plain, store)
    (run,) = content.children
    assert names.GRID not in run.data.tags
    assert sum(run.data.tags[names.ROLE] == names.FORMER for run in content.runs) == 4
