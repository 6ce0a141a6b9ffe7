"""Every run says what the store says: as trainings come, again, anew, and after edits."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from goal_sweep.runners.tracking.client import Experiment
from goal_sweep.runners.tracking.sync import SweepTracking
from mlflow import MlflowClient

from goal_sweep.runners.results import training_row
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import schema as names
from goal_sweep.runners.tracking.page import SweepPage
from goal_sweep.runners.tracking.uri import OtherStoreError
from goal_sweep.runners.tracking.values import params_of
from goal_sweep.sweeps.results import RESULTS_FILE
from tests.helpers.mlflow_cases import (
    ALONE,
    KEY,
    SWEEP,
    TRAINING,
    Content,
    database,
    folder_of,
    synced,
    tracked_at,
)
from tests.helpers.store_cases import record, result, result_of, train, write_weights
from tests.helpers.until import until

pytestmark = pytest.mark.integration


def test_a_finished_cell_is_one_complete_run(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    content = synced(uri, store, ALONE)
    run = content.child(KEY)
    tags = run.data.tags
    assert run.info.run_name == "seed 1 con/con test_byobnet (frozen)"
    assert run.info.status == "FINISHED"
    assert {name: text for name, text in tags.items() if name.startswith("goal.")} == {
        "goal.role": "report", "goal.cell": TRAINING.cell.id, "goal.stage": "frozen", "goal.stage_key": KEY,
        "goal.pair": "con", "goal.triplet": "con", "goal.seed": "1", "goal.backbone": "test_byobnet",
        "goal.framework": "vsepp", "goal.dataset": "scenes", "goal.variant": "paper", "goal.status": "done",
        "goal.git_commit": tags["goal.git_commit"], "goal.data_fingerprint": "f",
        "goal.checkpoint": tags["goal.checkpoint"], "goal.shown": tags["goal.shown"],
    }  # fmt: skip
    assert (tags["mlflow.source.name"], tags["mlflow.source.type"]) == ("goal-sweep launch", "LOCAL")
    assert (store.root / tags[names.CHECKPOINT]).is_file()
    (parent,) = content.parents
    assert tags[names.PARENT_RUN] == parent.info.run_id
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "s"
    table = store.read_results("s")
    assert table is not None
    assert parent.data.tags[names.TABLE] == hashlib.sha256(table).hexdigest()
    assert SweepPage(uri, "s").results_table() == table
    assert run.data.params == params_of(training_row(store, TRAINING, 1))
    at = [1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000]
    history = content.history(KEY)
    assert history["val/rsum"] == [(1, 10.0, at[0]), (2, 20.0, at[1]), (3, 30.0, at[2])]
    assert [value for _, value, _ in history["train/hinge"]] == [1.0, 0.5, 1 / 3]
    assert [(step, value) for step, value, _ in history["test/rsum"]] == [(3, 42.0)]
    names_of = ["selected/val_rsum", "test/i2t_r1", "test/rsum", "test/t2i_r1", "train/hinge", "val/rsum"]
    assert sorted(history) == names_of
    assert [(step, value) for step, value, _ in history["selected/val_rsum"]] == [(3, 30.0)]
    assert run.info.end_time == int(result_of(folder)["finished"] * 1000)


def test_epochs_arrive_as_they_come_and_once_each(uri, store):
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        for epoch in (1, 2):
            folder.write_metrics([record(number) for number in range(1, epoch + 1)])
            for _ in range(3):
                tracking.sync(TRAINING)
            tracking.flush(10)
            assert tracking.trouble == ""
            content = Content(uri)
            assert [step for step, _, _ in content.history(KEY)["val/rsum"]] == list(range(1, epoch + 1))
            assert content.child(KEY).info.status == "RUNNING"
            assert content.child(KEY).data.tags[names.STATUS] == "running"
            assert content.parents[0].info.status == "RUNNING"
    content = Content(uri)
    assert content.child(KEY).info.status == "RUNNING"  # the launch is over, but no later one has updated the run
    assert content.parents[0].info.status == "KILLED"
    content = synced(uri, store)
    assert content.child(KEY).info.status == "KILLED"
    assert content.child(KEY).data.tags[names.STATUS] == "waiting"
    assert [run.data.tags[names.STAGE_KEY] for run in content.children] == [KEY]  # the other training has not begun


def test_a_second_sync_changes_nothing(uri, store):
    half, whole = folder_of(store, 0), folder_of(store, 1)
    half.claim("L")
    half.write_metrics([record(1)])
    whole.claim("L")
    train(whole, 2)
    first = synced(uri, store, live=False).dump()
    assert synced(uri, store, live=False).dump() == first
    assert len(first) == 3


def test_a_rebuilt_database_holds_the_same(empty_database, store, tmp_path):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    contents = [synced(database(empty_database, tmp_path / name), store) for name in ("a", "b")]
    one, two = (
        {**content.history(KEY), "tags": {**content.child(KEY).data.tags, names.PARENT_RUN: ""}} for content in contents
    )
    assert one == two
    infos = [content.child(KEY).info for content in contents]
    assert infos[0].start_time == infos[1].start_time
    assert infos[0].end_time == infos[1].end_time


def test_failure_has_its_reason_and_loses_it_when_mended(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    folder.write_metrics([record(1)])
    folder.fail("NaN in epoch 2", "Traceback")
    run = synced(uri, store, ALONE).child(KEY)
    assert run.info.status == "FAILED"
    assert run.data.tags[names.STATUS] == "failed"
    assert run.data.tags["goal.reason"] == "NaN in epoch 2"
    assert Content(uri).parents[0].info.status == "FAILED"
    before = run.info.run_id
    again = folder_of(store)
    again.claim("M")
    train(again, 2)
    run = synced(uri, store, ALONE).child(KEY)
    assert run.info.run_id == before
    assert run.info.status == "FINISHED"
    assert "goal.reason" not in run.data.tags
    assert Content(uri).parents[0].info.status == "FINISHED"


@pytest.mark.parametrize("tracked_before", [True, False])
def test_a_cell_trained_anew_replaces_its_run(uri, store, tracked_before):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    old = synced(uri, store).child(KEY).info.run_id
    store.set_aside(TRAINING)
    if tracked_before:
        assert KEY not in [run.data.tags[names.STAGE_KEY] for run in synced(uri, store).children]
    again = folder_of(store)
    again.claim("M")
    again.save_with("best-1.safetensors", write_weights)
    again.write_metrics([record(1, 11.0)])
    again.finish(result(1, test_rsum=43.0))
    content = synced(uri, store)
    assert content.child(KEY).info.run_id != old
    assert [(step, value) for step, value, _ in content.history(KEY)["test/rsum"]] == [(1, 43.0)]


def test_what_somebody_changed_in_mlflow_is_mended_by_a_thorough_sync(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    content = synced(uri, store, ALONE)
    before = content.child(KEY)
    content.client.set_tag(before.info.run_id, names.DATASET, "edited")
    content.client.set_tag(before.info.run_id, "goal.reason", "edited")
    assert synced(uri, store, ALONE).child(KEY).data.tags[names.DATASET] == "edited"
    after = synced(uri, store, ALONE, thorough=True).child(KEY)
    assert after.info.run_id == before.info.run_id
    assert after.data.tags == before.data.tags
    content.client.log_metric(before.info.run_id, "test/rsum", 99.0, step=2)
    assert synced(uri, store, ALONE, thorough=True).child(KEY).data.metrics["test/rsum"] == 42.0


def test_a_lost_table_is_found_missing_by_a_thorough_sync(uri, store):
    content = synced(uri, store, live=False)
    lost = Path(content.parents[0].info.artifact_uri.removeprefix("file://")) / RESULTS_FILE
    lost.unlink()
    synced(uri, store, live=False)
    assert not lost.exists()  # a relaunch trusts the tag
    synced(uri, store, live=False, thorough=True)
    assert lost.read_bytes() == store.read_results("s")


def test_an_artifact_store_that_refuses_keeps_no_number_out(uri, store, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError("no room for artifacts")

    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    monkeypatch.setattr(MlflowClient, "log_artifact", refuse)
    told: list[str] = []
    with SweepTracking(tracked_at(uri, ALONE), store, live=False, warn=told.append) as tracking:
        assert tracking.sync_all(wait=30)
    content = Content(uri)
    assert content.child(KEY).data.metrics["test/rsum"] == 42.0
    assert names.TABLE not in content.parents[0].data.tags
    assert ["no room for artifacts" in line for line in told] == [True]


def test_a_renamed_experiment_stays_the_sweeps(uri, store):
    before = synced(uri, store, live=False).dump()
    client = MlflowClient(uri)
    client.rename_experiment(client.get_experiment_by_name("s").experiment_id, "my favourite")
    with SweepTracking(tracked_at(uri), store, live=False) as tracking:
        assert tracking.sync_all(wait=30)
    assert client.get_experiment_by_name("s") is None
    assert Content(uri, "my favourite").dump() == before


def test_a_run_that_an_edit_abandoned_does_not_stay_running(uri, store):
    edited = replace(SWEEP, config=replace(SWEEP.config, stages=(replace(SWEEP.config.stages[0], lr=0.2),)))
    folder = folder_of(store)
    with store.heartbeat("s") as launch:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert synced(uri, store).child(KEY).info.status == "RUNNING"
    (run,) = [run for run in synced(uri, store, edited).runs if run.data.tags.get(names.STAGE_KEY) == KEY]
    assert (run.info.status, run.data.tags[names.ROLE]) == ("KILLED", names.FORMER)
    assert synced(uri, store).child(KEY).info.run_id == run.info.run_id  # asked for again


def test_runs_of_another_store_are_left_alone_until_somebody_takes_them_over(uri, store, tmp_path):
    other = Store(tmp_path / "other")
    other.prepare()
    for which, rsum in ((store, 42.0), (other, 43.0)):
        folder = which.folder(TRAINING)
        folder.claim("L")
        folder.save_with("best-1.safetensors", write_weights)
        folder.write_metrics([record(1)])
        folder.finish(result(1, test_rsum=rsum))
    before = synced(uri, store, ALONE).dump()
    told: list[str] = []
    with SweepTracking(tracked_at(uri, ALONE), other, warn=told.append) as tracking:
        assert not tracking.wait_open(30)  # a launch trains on
        tracking.sync(TRAINING)
        assert not tracking.sync_all(wait=30)
        with pytest.raises(OtherStoreError, match="another store"):
            tracking.require_own()
    assert [str(store.root) in line for line in told] == [True]
    assert Content(uri).dump() == before
    content = synced(uri, other, ALONE, take_over=True)
    assert content.child(KEY).data.metrics["test/rsum"] == 43.0
    assert content.parents[0].data.tags[names.STORE] == str(other.root)
    with SweepTracking(tracked_at(uri, ALONE), store) as tracking:
        assert not tracking.sync_all(wait=30)


def test_who_writes_takes_a_fifth_of_a_core_while_nobody_waits(uri, store, monkeypatch):
    wait_for, rests, work_s = threading.Condition.wait_for, list[float](), 0.05

    def change(*_: object) -> None:
        ends = time.thread_time() + work_s
        while time.thread_time() < ends:
            pass

    def noted(self: threading.Condition, happened: Callable[[], object], timeout: float | None = None) -> object:
        if threading.current_thread().name == "goal-sweep tracking" and timeout is not None:
            rests.append(timeout)
        return wait_for(self, happened, timeout)

    monkeypatch.setattr(Experiment, "change", change)
    monkeypatch.setattr(threading.Condition, "wait_for", noted)
    with SweepTracking(tracked_at(uri), store):
        until(lambda: rests, "rest")
    assert rests[0] >= 4 * work_s
