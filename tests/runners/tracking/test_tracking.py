from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import TEMPORARILY_UNAVAILABLE

from goal_core.data.config import KarpathyConfig
from goal_core.models.config import BackboneConfig, ModelConfig
from runners.store import Store
from runners.store.provenance import gather
from runners.tracking import schema as names
from runners.tracking.client import Tracking, create_database
from runners.tracking.runs import RunWriter
from runners.tracking.sync import SweepTracking, reconcile
from runners.tracking.uri import TrackingError, prepare_database, resolve_uri, sqlite_file
from runners.tracking.values import objective_key, settings_key, training_params
from sweeps import ResolvedSweep, load_sweep
from tests.helpers.mlflow_cases import SWEEP, Content, database, template, tracked_at
from tests.helpers.paths import ROOT
from tests.helpers.store_cases import record, result, train, write_weights
from tests.helpers.sweep_cases import resolved

pytestmark = pytest.mark.integration
TRAINING = SWEEP.trainings[0]
KEY = TRAINING.key
ALONE = resolved("con/con", resources=SWEEP.config.resources)
"""The same sweep with only its first training."""


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory):
    return template(tmp_path_factory.mktemp("tracking"))


@pytest.fixture
def uri(empty_database, tmp_path):
    return database(empty_database, tmp_path / "tracking")


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def folder_of(store, which=0):
    return store.folder(SWEEP.trainings[which])


def synced(uri, store, sweep=SWEEP, **settings):
    with SweepTracking(tracked_at(uri, sweep), store, **settings) as tracking:
        assert tracking.sync_all(wait=30)
        assert tracking.trouble == ""
    return Content(uri)


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


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


class DyingClient:
    """A client whose process dies right before or right after one of its writes."""

    def __init__(self, client, dies_at):
        self._client, self._left = client, dies_at

    def __getattr__(self, name):
        original = getattr(self._client, name)
        if name.startswith(("get", "search", "_")):
            return original

        def write(*args, **kwargs):
            self._tick()
            done = original(*args, **kwargs)
            self._tick()
            return done

        return write

    def _tick(self):
        self._left -= 1
        if self._left == 0:
            raise Dead


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


def test_what_is_not_a_number_is_named_and_not_faked(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    folder.write_metrics([{"epoch": 1, "metrics": {"train/hinge": float("nan"), "val/rsum": 1.0}}])
    synced(uri, store)
    folder.write_metrics(
        [
            {"epoch": 1, "metrics": {"train/hinge": float("nan"), "val/rsum": 1.0}},
            {"epoch": 2, "metrics": {"train/hinge": float("inf"), "val/rsum": 2.0}},
        ]
    )
    content = synced(uri, store)
    assert "train/hinge" not in content.history(KEY)
    assert [value for _, value, _ in content.history(KEY)["val/rsum"]] == [1.0, 2.0]
    assert json.loads(content.child(KEY).data.tags[names.NONFINITE]) == ["train/hinge@1", "train/hinge@2"]


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
    again.save_with("best.safetensors", write_weights)
    again.write_metrics([record(1, 11.0)])
    again.finish(result(1, test_rsum=43.0))
    content = synced(uri, store)
    assert content.child(KEY).info.run_id != old
    assert [(step, value) for step, value, _ in content.history(KEY)["test/rsum"]] == [(1, 43.0)]


def test_params_do_not_depend_on_what_the_cells_id_ignores():
    data = {"name": "coco", "root": "/a", "annotations": "x.json"}
    elsewhere = {"name": "mine", "root": "/b", "annotations": "y.json"}
    one, two = (
        training_params(replace(TRAINING, cell=replace(TRAINING.cell, data=KarpathyConfig(**where), model=model)))
        for where, model in (
            (data, ModelConfig(backbone=BackboneConfig(name="resnet50", weights="/a/w.safetensors"))),
            (elsewhere, ModelConfig(backbone=BackboneConfig(name="resnet50", weights="/b/w.safetensors"))),
        )
    )
    assert one == two
    assert one["model.backbone"] == "resnet50"
    assert one["seed"] == "1"
    assert one["objective.pair"] == "con"
    assert one["data.image.size"] == "224"
    assert not [value for value in one.values() if "/" in value]


def test_an_opened_sweep_is_tracked_under_its_name(empty_database, store):
    config = load_sweep("quickstart", [f"store={store.root}"])
    sweep = ResolvedSweep(config=config, data_fingerprint="print", weights={"test_byobnet": "random"})
    shutil.copy(empty_database, store.root / "mlflow.db")
    first = sweep.trainings[0]
    folder = store.folder(first)
    folder.claim("L")
    train(folder, 2)
    with SweepTracking(sweep, store) as tracking:
        assert tracking.sync_all(wait=30)
    content = Content(f"sqlite:///{store.root / 'mlflow.db'}", "quickstart")
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
    monkeypatch.setattr("runners.store.lease.gather", lambda: modified)
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


# Trouble.


def test_deleted_experiment_and_run_come_back(uri, store):
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert tracking.sync_all(wait=10)
        client = MlflowClient(uri)
        client.delete_run(Content(uri).child(KEY).info.run_id)
        folder.write_metrics([record(1), record(2)])
        assert tracking.sync_all(wait=10)
        assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == [1, 2]
        client.delete_experiment(client.get_experiment_by_name("s").experiment_id)
        folder.write_metrics([record(1), record(2), record(3)])
        assert tracking.sync_all(wait=10)
        assert any("restored" in text for text in tracking.tracking.warnings)
    content = Content(uri)
    assert [step for step, _, _ in content.history(KEY)["val/rsum"]] == [1, 2, 3]
    assert len(content.parents) == 1


def test_deleted_database_is_made_again_from_the_store(uri, store, monkeypatch, empty_database):
    file = sqlite_file(uri)
    monkeypatch.setattr("runners.tracking.client.create_database", lambda path: shutil.copy(empty_database, path))
    folder = folder_of(store)
    with store.heartbeat("s") as launch, SweepTracking(tracked_at(uri), store) as tracking:
        launch.start()
        folder.claim(launch.id)
        folder.write_metrics([record(1)])
        assert tracking.sync_all(wait=10)
        file.unlink()
        folder.write_metrics([record(1), record(2)])
        assert tracking.sync_all(wait=10)
    assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == [1, 2]
    assert len(Content(uri).parents) == 1


def test_one_process_can_make_a_database_twice(tmp_path):
    file = tmp_path / "mlflow.db"
    for _ in range(2):
        prepare_database(file, create_database)
        with sqlite3.connect(file) as database:
            assert database.execute("select count(*) from experiments").fetchone() == (1,)
        file.unlink()
    assert not list(tmp_path.glob("*.creating*"))


def test_an_outage_holds_nobody_up_and_is_caught_up_with(uri, store, monkeypatch):
    class Down(DyingClient):
        def _tick(self):
            if down.is_set():
                raise MlflowException("(sqlite3.OperationalError) database is locked", TEMPORARILY_UNAVAILABLE)

    down, said = threading.Event(), []
    monkeypatch.setattr("runners.tracking.queue.RETRY_WAITS_S", (0.05,))
    monkeypatch.setattr("runners.tracking.client.MlflowClient", lambda uri: Down(MlflowClient(uri), 0))
    folder = folder_of(store)
    folder.claim("L")
    tracking = SweepTracking(tracked_at(uri), store, warn=said.append)
    assert tracking.tracking.wait_open(10)
    down.set()
    for epoch in range(1, 40):
        folder.write_metrics([record(number) for number in range(1, epoch + 1)])
        began = time.perf_counter()
        tracking.sync_all()
        assert time.perf_counter() - began < 0.5
    assert not tracking.sync_all(wait=0.2)
    assert "2 of 2 runs are not up to date: tracking does not answer" in tracking.trouble
    down.clear()
    assert tracking.sync_all(wait=30)
    tracking.close()
    assert len(said) == 2
    assert "does not answer" in said[0]
    assert "works again" in said[1]
    assert [step for step, _, _ in Content(uri).history(KEY)["val/rsum"]] == list(range(1, 40))


@pytest.mark.slow
def test_a_locked_database_holds_nobody_up_and_is_caught_up_with(uri, store):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 3)
    said = []
    tracking = SweepTracking(tracked_at(uri), store, warn=said.append)
    assert tracking.tracking.wait_open(10)
    with contextlib.closing(sqlite3.connect(sqlite_file(uri), isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        began = time.perf_counter()
        assert not tracking.sync_all()
        assert time.perf_counter() - began < 1
        deadline = time.monotonic() + 40
        while not said and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "does not answer" in said[0]
        assert "2 of 2 runs are not up to date" in tracking.trouble
        lock.execute("ROLLBACK")
    assert tracking.sync_all(wait=30)
    assert tracking.trouble == ""
    assert "works again" in said[-1]
    tracking.close()
    assert Content(uri).child(KEY).info.status == "FINISHED"


def test_a_server_that_is_down_stops_nothing(store, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 1)
    said = []
    tracking = SweepTracking(tracked_at("http://127.0.0.1:9"), store, warn=said.append, closing_s=0.2)
    assert not tracking.tracking.wait_open(1.5)
    assert not tracking.sync_all(wait=0.2)
    assert tracking.trouble.startswith("2 of 2 runs are not up to date: tracking does not answer")
    assert len(said) == 1
    tracking.close()


def test_a_file_that_is_no_database_is_said_at_once(tmp_path, store):
    path = tmp_path / "mlflow.db"
    path.write_text("not a database at all")
    tracking = Tracking(f"sqlite:///{path}", SWEEP, warn=lambda text: None)
    with pytest.raises(TrackingError, match="is not an SQLite database"):
        tracking.wait_open(10)
    tracking.update(lambda runs: None)
    assert not tracking.flush(1)
    tracking.close("done", 1)
    assert path.read_text() == "not a database at all"


def test_a_bug_in_one_update_does_not_block_the_next(uri):
    said, reached = [], []
    tracking = Tracking(uri, SWEEP, warn=said.append)
    tracking.update(lambda runs: {}["missing"])
    tracking.update(lambda runs: reached.append(runs))
    assert tracking.flush(10)
    tracking.close("done")
    assert len(reached) == 1
    assert "update failed and is skipped" in said[0]


def test_mlflow_is_quiet(uri, store, capfd):
    folder = folder_of(store)
    folder.claim("L")
    train(folder, 1)
    synced(uri, store)
    out, err = capfd.readouterr()
    assert out + err == ""
    assert logging.getLogger("mlflow").level == logging.ERROR
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.slow
def test_processes_that_open_a_fresh_database_together(tmp_path):
    code = (
        "import sys; from runners.tracking.client import Tracking; from tests.helpers.mlflow_cases import SWEEP\n"
        "t = Tracking(sys.argv[1], SWEEP); assert t.wait_open(60); assert t.close('done') == 0"
    )
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    running = [
        subprocess.Popen([sys.executable, "-c", code, uri], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [(process.communicate()[1], process.returncode) for process in running] == [("", 0)] * 3
    Tracking(uri, SWEEP).close("done")
    assert len(Content(uri).parents) == 1


# Locations of the database.


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:///{store}/mlflow.db", "sqlite:////data/store/mlflow.db"),
        ("sqlite:////abs/x.db", "sqlite:////abs/x.db"),
        ("sqlite:///x.db", "sqlite:///{cwd}/x.db"),
        ("http://host:5000", "http://host:5000"),
        ("postgresql+psycopg2://host/db", "postgresql+psycopg2://host/db"),
        ("databricks", "databricks"),
    ],
)
def test_uris_are_made_absolute(given, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_uri(given, Path("/data/store")) == meant.replace("{cwd}", str(tmp_path))


@pytest.mark.parametrize(
    "given", ["./mlruns", "file:///x", "sqlite://", "sqlite:///:memory:", "sqlite:///", "s3://b/x", ""]
)
def test_uris_that_cannot_work_are_refused_in_one_line(given):
    with pytest.raises(TrackingError) as error:
        resolve_uri(given, Path("/data/store"))
    assert "\n" not in str(error.value)
