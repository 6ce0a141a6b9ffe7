"""Runs that a dying or failing writer leaves are completed, and nothing is logged twice."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from mlflow import MlflowClient

from runners.tracking import schema as names
from runners.tracking.runs import RunWriter
from runners.tracking.sync import reconcile
from runners.tracking.values import sweep_tags, training_params
from sweeps import Axis, SweepObjectives
from tests.helpers.mlflow_cases import (
    ALONE,
    KEY,
    SWEEP,
    TRAINING,
    Content,
    Dead,
    DyingClient,
    database,
    folder_of,
    synced,
)
from tests.helpers.store_cases import result, train

pytestmark = pytest.mark.integration


def open_runs(uri, client=None):
    plain = MlflowClient(uri)
    found = plain.get_experiment_by_name("s")
    experiment = found.experiment_id if found else plain.create_experiment("s")
    return RunWriter(client or plain, experiment, SWEEP)


def reconciled(runs, store, which=0):
    training = SWEEP.trainings[which]
    reconcile(runs, training, store.folder(training), store.status([training])[training])


def test_nothing_is_lost_or_logged_twice_wherever_the_driver_dies(empty_database, store, tmp_path, monkeypatch):
    monkeypatch.setattr("runners.tracking.runs.MAX_BATCH", 2)  # several batches for one cell
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    for dies_at in range(1, 100):
        uri = database(empty_database, tmp_path / str(dies_at))
        try:
            reconciled(open_runs(uri, DyingClient(MlflowClient(uri), dies_at)), store)
        except Dead:
            survived = False
        else:
            survived = True
        reconciled(open_runs(uri), store)
        content = Content(uri)
        steps = {metric: [step for step, _, _ in points] for metric, points in content.history(KEY).items()}
        finals = {metric: [3] for metric in [*result(3)["metrics"], "selected/val_rsum"] if metric != "val/rsum"}
        assert steps == {"train/hinge": [1, 2, 3], "val/rsum": [1, 2, 3]} | finals, dies_at
        assert content.child(KEY).info.status == "FINISHED"
        assert content.child(KEY).data.params == training_params(TRAINING)
        assert len(content.parents) == 1
        if survived:
            break
    assert dies_at > 12


def test_what_arrived_though_it_failed_is_not_repeated(empty_database, store, tmp_path, monkeypatch):
    class Flaky(DyingClient):
        def _tick(self):
            self._left -= 1
            if self._left == 0:
                raise ConnectionError("the answer got lost")

    monkeypatch.setattr("runners.tracking.queue.RETRY_WAITS_S", (0.01,))
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    for fails_at in range(1, 14):
        uri = database(empty_database, tmp_path / str(fails_at))
        with monkeypatch.context() as patch:
            patch.setattr("runners.tracking.client.MlflowClient", lambda uri, n=fails_at: Flaky(MlflowClient(uri), n))
            content = synced(uri, store, ALONE)
        assert [step for step, _, _ in content.history(KEY)["val/rsum"]] == [1, 2], fails_at
        assert content.child(KEY).info.status == "FINISHED"
        assert len(content.parents) == 1


def test_what_is_not_a_number_is_named_and_not_faked(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    folder.write_metrics([{"epoch": 1, "time": 1.7e9, "metrics": {"train/hinge": float("nan"), "val/rsum": 1.0}}])
    synced(uri, store)
    folder.write_metrics(
        [
            {"epoch": 1, "time": 1.7e9, "metrics": {"train/hinge": float("nan"), "val/rsum": 1.0}},
            {"epoch": 2, "time": 1.7e9, "metrics": {"train/hinge": float("inf"), "val/rsum": 2.0}},
        ]
    )
    content = synced(uri, store)
    assert "train/hinge" not in content.history(KEY)
    assert [value for _, value, _ in content.history(KEY)["val/rsum"]] == [1.0, 2.0]
    assert json.loads(content.child(KEY).data.tags[names.NONFINITE]) == ["train/hinge@1", "train/hinge@2"]


def test_the_tags_of_axes_that_a_sweep_has_no_more_leave_its_run(uri):
    axis = Axis(key="objectives.params.tau", values=tuple(map(float, range(1, 400))))
    axes = replace(SWEEP, config=replace(SWEEP.config, objectives=SweepObjectives(only=("sig/cir",)), axes=(axis,)))
    client = MlflowClient(uri)
    experiment = client.create_experiment("s")
    RunWriter(client, experiment, axes)
    before = Content(uri).parents[0].data.tags
    assert {names.AXES, f"{names.OBJECTIVE_KEYS}.2"} <= before.keys()
    RunWriter(client, experiment, SWEEP)
    (parent,) = Content(uri).parents
    assert not {names.AXES, f"{names.OBJECTIVE_KEYS}.2"} & parent.data.tags.keys()
    assert parent.data.tags.items() >= sweep_tags(SWEEP).items()
