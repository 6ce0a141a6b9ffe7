"""Every run says what the store says: as trainings come, again, anew, and after edits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from runners.store.records.provenance import gather
from runners.tracking import schema as names
from runners.tracking.sync import SweepTracking
from runners.tracking.values import objective_key, settings_key, training_params
from sweeps import ResolvedSweep, load_sweep
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
from tests.helpers.store_cases import record, result, train, write_weights

pytestmark = pytest.mark.integration


"""The same sweep with only its first training."""


def test_a_finished_cell_is_one_complete_run(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    content = synced(uri, store, ALONE)
    run = content.child(KEY)
    tags = run.data.tags
    assert run.info.run_name == "con/con test_byobnet seed 1 (frozen)"
    assert run.info.status == "FINISHED"
    assert {name: tags[name] for name in names.CELL_TAGS} == {
        "goal.role": "cell", "goal.cell": TRAINING.cell.id, "goal.stage": "frozen", "goal.stage_key": KEY,
        "goal.pair": "con",
        "goal.triplet": "con", "goal.seed": "1", "goal.backbone": "test_byobnet", "goal.framework": "vsepp",
        "goal.dataset": "scenes", "goal.variant": "paper", "goal.status": "done",
        "goal.git_commit": tags["goal.git_commit"],
        "goal.data_fingerprint": "f",
        "goal.objective": "con/con", "goal.objective_key": objective_key(TRAINING.cell),
        "goal.settings_key": settings_key(TRAINING),
    }  # fmt: skip
    assert names.REASON not in tags
    (parent,) = content.parents
    assert tags[names.PARENT_RUN] == parent.info.run_id
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "s"
    assert {name: parent.data.tags[name] for name in names.SWEEP_TAGS} == {
        "goal.role": "sweep", "goal.sweep": "s", "goal.seeds": "[1]", "goal.objectives": '["con/con"]',
        "goal.stages": '["frozen"]', "goal.objective_keys": json.dumps([objective_key(TRAINING.cell)]),
        "goal.settings_keys": json.dumps([settings_key(TRAINING)]), "goal.data_fingerprint": "f",
    }  # fmt: skip
    assert run.data.params == training_params(TRAINING)
    at = [1_700_000_001_000, 1_700_000_002_000, 1_700_000_003_000]
    history = content.history(KEY)
    assert history["val/rsum"] == [(1, 10.0, at[0]), (2, 20.0, at[1]), (3, 30.0, at[2])]
    assert [value for _, value, _ in history["train/hinge"]] == [1.0, 0.5, 1 / 3]
    assert [(step, value) for step, value, _ in history["test/rsum"]] == [(3, 42.0)]
    names_of = ["selected/val_rsum", "test/i2t_r1", "test/rsum", "test/t2i_r1", "train/hinge", "val/rsum"]
    assert sorted(history) == names_of
    assert [(step, value) for step, value, _ in history["selected/val_rsum"]] == [(3, 30.0)]
    assert run.info.end_time == int(folder.result()["finished"] * 1000)


def test_epochs_arrive_as_they_come_and_once_each(uri, store):
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        for epoch in (1, 2):
            folder.write_metrics([record(number) for number in range(1, epoch + 1)])
            for _ in range(3):
                tracking.sync(TRAINING)
            assert tracking.tracking.flush(10)
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
    assert run.data.tags[names.REASON] == "NaN in epoch 2"
    assert Content(uri).parents[0].info.status == "FAILED"
    before = run.info.run_id
    again = folder_of(store)
    again.claim("M")
    train(again, 2)
    run = synced(uri, store, ALONE).child(KEY)
    assert run.info.run_id == before
    assert run.info.status == "FINISHED"
    assert names.REASON not in run.data.tags
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


def test_a_run_that_ended_below_its_warm_up_is_tagged_with_both_numbers(uri, store):
    stage = replace(TRAINING.stage, warmup_epochs=2)
    sweep = replace(ALONE, config=replace(ALONE.config, stages=(stage,)))
    folder = store.folder(sweep.trainings[0])
    folder.claim("L")
    folder.save_with("best-3.safetensors", write_weights)
    folder.write_metrics([record(1, 50.0), record(2, 80.0), record(3, 40.0)])
    folder.finish(result(3))
    run = synced(uri, store, sweep).child(sweep.trainings[0].key)
    assert run.data.tags["goal.below_warmup"] == (
        "val rsum 40.0 in its best epoch (3), 50% below the 80.0 of warm-up epoch 2"
    )


def test_a_run_whose_objective_was_weak_beside_matching_is_tagged(uri, store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best-1.safetensors", write_weights)
    weak, strong = (
        {**one, "metrics": {**one["metrics"], "train/objective_to_matching": ratio}}
        for one, ratio in ((record(1, 50.0), 0.0013), (record(2, 40.0), 0.2))
    )
    folder.write_metrics([weak, strong])
    folder.finish(result(1))
    run = synced(uri, store).child(KEY)
    assert run.data.tags["goal.weak_objective"] == (
        "its gradient was below 1% of that of matching in 1 of 2 epochs (0.0013 of it in epoch 1)"
    )


def test_a_run_whose_heads_were_stacked_says_for_how_many_of_its_steps(uri, store):
    folder = store.folder(TRAINING)
    folder.claim("L")
    folder.save_with("best-1.safetensors", write_weights)
    folder.write_metrics([record(1, 50.0)])
    folder.finish({**result(1), "stacked": 0.5})
    assert synced(uri, store).child(KEY).data.tags["goal.stacked"] == "0.5"


def test_an_opened_sweep_is_tracked_under_its_name(empty_database, store):
    config = load_sweep("scenes", [f"store={store.root}"])
    sweep = ResolvedSweep(config=config, data_fingerprint="print", weights={"test_byobnet": "random"})
    shutil.copy(empty_database, store.root / "mlflow.db")
    first = sweep.trainings[0]
    folder = store.folder(first)
    folder.claim("L")
    train(folder, 2)
    with SweepTracking(sweep, store) as tracking:
        assert tracking.sync_all(wait=30)
    content = Content(f"sqlite:///{store.root / 'mlflow.db'}", "scenes")
    (parent,) = content.parents
    assert json.loads(parent.data.tags[names.SEEDS]) == [1, 2, 3]
    assert len(json.loads(parent.data.tags[names.OBJECTIVES])) == 15
    assert json.loads(parent.data.tags[names.STAGES]) == ["frozen", "finetune"]
    assert parent.info.status == "KILLED"  # 89 of 90 trainings are still to be done
    run = content.child(first.key)
    assert run.info.run_name == "con/con test_byobnet seed 1 (frozen)"
    assert run.data.tags[names.DATA_FINGERPRINT] == "print"
    assert len(content.children) == 1


def test_a_run_of_other_labels_is_told_anew_what_it_is(uri, store):
    """A run with the settings key of an earlier version, or an old dataset name, still belongs to the same cell."""
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    content = synced(uri, store, ALONE)
    before = content.child(KEY)
    content.client.set_tag(before.info.run_id, names.SETTINGS_KEY, "of an earlier version")
    content.client.set_tag(before.info.run_id, names.DATASET, "old name")
    after = synced(uri, store, ALONE).child(KEY)
    assert after.info.run_id == before.info.run_id
    assert after.data.tags == before.data.tags


def test_a_finished_run_of_an_earlier_version_is_given_its_selected_metrics(uri, store, monkeypatch):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    with monkeypatch.context() as patch:
        patch.setattr(names, "VAL_PREFIX", "none of these/")
        content = synced(uri, store, ALONE)
        assert "selected/val_rsum" not in content.history(KEY)
    after = synced(uri, store, ALONE)
    assert [(step, value) for step, value, _ in after.history(KEY)["selected/val_rsum"]] == [(2, 20.0)]
    assert after.child(KEY).info.run_id == content.child(KEY).info.run_id


def test_what_a_modified_tree_trained_says_so(uri, store, monkeypatch):
    modified = replace(gather(), git_commit="c0ffee", git_diff="+1", git_diff_sha256="ab" * 32)
    monkeypatch.setattr("runners.store.leases.lease.gather", lambda: modified)
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 2)
    tags = synced(uri, store, ALONE).child(KEY).data.tags
    assert (tags[names.GIT_COMMIT], tags[names.GIT_DIFF]) == ("c0ffee", "abababababab")


def test_a_run_that_an_edit_abandoned_does_not_stay_running(uri, store):
    edited = replace(SWEEP, config=replace(SWEEP.config, stages=(replace(SWEEP.config.stages[0], lr=0.2),)))
    folder = folder_of(store)
    with store.heartbeat("s") as launch:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert synced(uri, store).child(KEY).info.status == "RUNNING"
        assert synced(uri, store, edited).child(KEY).info.status == "RUNNING"  # its driver is alive
    assert Content(uri).child(KEY).info.status == "RUNNING"
    run = synced(uri, store, edited).child(KEY)
    assert (run.info.status, run.data.tags[names.STATUS]) == ("KILLED", "waiting")
