"""Runs that a dying or failing writer leaves are completed, and nothing is logged twice."""

from __future__ import annotations

from dataclasses import fields

import pytest
from goal_sweep.runners.tracking.runs import RunWriter, TrackedRun
from mlflow import MlflowClient

from goal_sweep.runners.results import training_row
from goal_sweep.runners.tracking.values import params_of
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


def open_runs(uri, store, client=None):
    plain = MlflowClient(uri)
    found = plain.get_experiment_by_name("s")
    experiment = found.experiment_id if found else plain.create_experiment("s")
    return RunWriter(client or plain, experiment, "s", store)


def reconciled(runs, store, which=0):
    runs.agree(training_row(store, SWEEP.trainings[which], 1))


def test_nothing_is_lost_or_logged_twice_wherever_the_driver_dies(empty_database, store, tmp_path, monkeypatch):
    monkeypatch.setattr("goal_sweep.runners.tracking.runs.MAX_BATCH", 2)  # several batches for one cell
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    for dies_at in range(1, 100, 2):  # dead after one write leaves what dead before the next leaves
        uri = database(empty_database, tmp_path / str(dies_at))
        try:
            reconciled(open_runs(uri, store, DyingClient(MlflowClient(uri), dies_at)), store)
        except Dead:
            survived = False
        else:
            survived = True
        reconciled(open_runs(uri, store), store)
        content = Content(uri)
        steps = {metric: [step for step, _, _ in points] for metric, points in content.history(KEY).items()}
        finals = {metric: [3] for metric in [*result(3)["metrics"], "selected/val_rsum"] if metric != "val/rsum"}
        assert steps == {"train/hinge": [1, 2, 3], "val/rsum": [1, 2, 3]} | finals, dies_at
        assert content.child(KEY).info.status == "FINISHED"
        assert content.child(KEY).data.params == params_of(training_row(store, TRAINING, 1))
        assert len(content.parents) == 1
        if survived:
            break
    assert dies_at > 12


def test_what_arrived_though_it_failed_is_not_repeated_and_no_other_run_read(
    empty_database, store, tmp_path, monkeypatch
):
    class Flaky(DyingClient):
        def _tick(self):
            self._left -= 1
            if self._left == 0:
                raise ConnectionError("the answer got lost")

    def counted(self):
        read.append(self)
        return pages(self)

    pages, read = RunWriter._pages, list[RunWriter]()
    monkeypatch.setattr(RunWriter, "_pages", counted)
    monkeypatch.setattr("goal_sweep.runners.tracking.sync.RETRY_WAITS_S", (0.01,))
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    for fails_at in range(2, 14, 2):  # after the write
        read.clear()
        uri = database(empty_database, tmp_path / str(fails_at))
        with monkeypatch.context() as patch:
            patch.setattr(
                "goal_sweep.runners.tracking.client.MlflowClient", lambda uri, n=fails_at: Flaky(MlflowClient(uri), n)
            )
            content = synced(uri, store, ALONE)
        assert [step for step, _, _ in content.history(KEY)["val/rsum"]] == [1, 2], fails_at
        assert content.child(KEY).info.status == "FINISHED"
        assert len(content.parents) == 1
        assert len(read) == 1 or fails_at <= 8, fails_at  # the writes with which it opens


def test_nothing_is_remembered_of_a_run_that_grows_with_its_points():
    assert {field.type for field in fields(TrackedRun)} <= {"str", "bool", "int | None"}
