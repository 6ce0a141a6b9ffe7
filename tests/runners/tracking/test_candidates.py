"""What MLflow holds of a sweep that tunes: candidates apart from what reports, the grids, and the trail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from runners.launch.tuning import trail_of
from runners.store import Store
from runners.tracking import schema as names
from runners.tracking.edits import describe_edits
from runners.tracking.runs import TrackedRun
from runners.tracking.sync import SweepTracking
from runners.tracking.values import sweep_tags, training_params, training_tags
from sweeps import ResolvedSweep
from tests.helpers.store_cases import record, result, write_weights
from tests.helpers.tuning_cases import searched, tuned


def _sweep(best: int, uri: str = "sqlite:///{store}/mlflow.db") -> tuple[ResolvedSweep, dict[str, Any]]:
    """A sweep whose search chose one of three candidates, and its trail."""
    sweep = tuned("objectives={only: [sig/cir]}", "seeds=[1]", f"tracking={uri}", budget=3)
    sweep = searched(sweep, lambda one: float(one.number == best))
    return sweep, trail_of(sweep)


def _train(sweep: ResolvedSweep, store: Store) -> None:
    for training in sweep.trainings:
        folder = store.folder(training)
        if folder.result() is not None:
            continue
        folder.claim("L")
        folder.save_with("best-3.safetensors", write_weights)
        folder.write_metrics([record(epoch) for epoch in (1, 2, 3)])
        ended = result(3)
        if training.number is not None:
            ended["metrics"] = {"val/rsum": 30.0}
        folder.finish(ended)


def _synced(sweep: ResolvedSweep, store: Store) -> None:
    with SweepTracking(sweep, store) as tracking:
        assert tracking.sync_all(wait=60)
        assert tracking.trouble == ""


@pytest.mark.integration
def test_candidates_have_their_role_and_no_test_number_and_the_grids_are_tagged(uri: str, store: Store) -> None:
    sweep, trail = _sweep(2, uri)
    _train(sweep, store)
    store.write_trail("quickstart", trail)
    _synced(sweep, store)
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("quickstart")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    candidates = [run for run in runs.values() if run.data.tags[names.ROLE] == "candidate"]
    assert sorted(run.data.tags[names.CANDIDATE] for run in candidates) == ["0", "1", "2"]
    assert not [name for run in candidates for name in run.data.metrics if name.startswith("test/")]
    assert {run.data.metrics["selected/val_rsum"] for run in candidates} == {30.0}
    assert all(names.GRID not in run.data.tags for run in candidates)
    reporting = [run for run in runs.values() if run.data.tags[names.ROLE] == "cell"]
    assert sorted(run.data.tags[names.GRID] for run in reporting) == ["default", "tuned"]
    assert all(names.POINT not in run.data.tags for run in reporting)
    parent = runs["quickstart"]
    path = Path(client.download_artifacts(parent.info.run_id, names.TRAIL_FILE))
    assert json.loads(path.read_text())["blocks"] == trail["blocks"]
    # The sweep now chooses another candidate; the earlier choice is in no grid any more.
    other, trail = _sweep(0, uri)
    _train(other, store)
    store.write_trail("quickstart", trail)
    _synced(other, store)
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    grids = sorted(run.data.tags[names.GRID] for run in runs.values() if run.data.tags[names.ROLE] == "cell")
    assert grids == ["default,tuned", "former"]
    path = Path(client.download_artifacts(parent.info.run_id, names.TRAIL_FILE))
    assert json.loads(path.read_text())["blocks"] == trail["blocks"]
    # Without the search, a run has no grid.
    plain = replace(other, config=replace(other.config, tune=None), trails=())
    _synced(plain, store)
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert names.GRID not in runs["sig/cir tf_efficientnet_lite0 seed 1 (frozen)"].data.tags


def test_the_sweeps_run_lists_the_keys_of_what_reports_alone() -> None:
    sweep, _ = _sweep(2)
    tags = sweep_tags(sweep)
    reporting = [training_tags(one) for one in sweep.reporting]
    assert set(json.loads(tags[names.OBJECTIVE_KEYS])) == {one[names.OBJECTIVE_KEY] for one in reporting}
    assert set(json.loads(tags[names.SETTINGS_KEYS])) == {one[names.SETTINGS_KEY] for one in reporting}
    assert names.AXES not in tags


def test_what_a_search_tries_is_not_called_an_edit() -> None:
    sweep, _ = _sweep(2)
    default, *_ = sweep.reporting

    def run(training: Any, **changed: str) -> TrackedRun:
        tags = training_tags(training) | changed
        return TrackedRun(id="r", status="FINISHED", started=1, tags=tags, params=training_params(training))

    others = [one for one in sweep.trainings if one is not default]
    assert describe_edits(sweep.trainings, others, {"x": run(default), "y": run(others[-1])}) == []
    (line,) = describe_edits([default], [default], {"x": run(sweep.reporting[1], **{names.GRID: "default"})})
    assert "edited since an earlier launch" in line
