"""A run's triplet record, and experiments that somebody renamed."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from pathlib import Path

import pytest
from mlflow import MlflowClient

from goal_core.checkpoints import TRIPLETS
from runners.store.store import Store
from runners.tracking import schema as names
from runners.tracking.sync import SweepTracking
from tests.helpers.mlflow_cases import Content, database, tracked_at
from tests.helpers.store_cases import npz, train
from tests.helpers.sweep_cases import resolved

pytestmark = pytest.mark.integration
SWEEP = resolved("con/con")
KEY = SWEEP.trainings[0].key
RECORD = npz("a record")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    folder = store.folder(SWEEP.trainings[0])
    folder.claim("L")
    folder.save(TRIPLETS, RECORD)
    train(folder, 2)
    return store


def synced(uri: str, store: Store, *, thorough: bool = False) -> Content:
    with SweepTracking(tracked_at(uri, SWEEP), store, live=False, thorough=thorough) as tracking:
        assert tracking.sync_all(wait=30)
        assert tracking.trouble == ""
    return Content(uri)


def artifact(content: Content) -> Path:
    run = content.child(KEY)
    return Path(run.info.artifact_uri.removeprefix("file://")) / names.TRIPLETS_FOLDER / TRIPLETS


def test_a_finished_stage_brings_its_triplet_record(empty_database: Path, store: Store, tmp_path: Path) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    content = synced(uri, store)
    assert artifact(content).read_bytes() == RECORD
    assert content.child(KEY).data.tags[names.TRIPLETS] == hashlib.sha256(RECORD).hexdigest()
    before = artifact(content).stat().st_mtime_ns
    assert synced(uri, store).dump() == content.dump()
    assert artifact(content).stat().st_mtime_ns == before


def test_a_lost_artifact_is_found_missing_by_a_thorough_sync(
    empty_database: Path, store: Store, tmp_path: Path
) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    lost = artifact(synced(uri, store))
    shutil.rmtree(lost.parent)
    synced(uri, store)
    assert not lost.exists()  # a relaunch trusts the tag and does not look into each run's artifacts
    synced(uri, store, thorough=True)
    assert lost.read_bytes() == RECORD


def test_an_artifact_store_that_refuses_keeps_no_number_out(
    empty_database: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError("no room for artifacts")

    monkeypatch.setattr(MlflowClient, "log_artifact", refuse)
    uri = database(empty_database, tmp_path / "tracking")
    told: list[str] = []
    with SweepTracking(tracked_at(uri, SWEEP), store, live=False, warn=told.append) as tracking:
        assert tracking.sync_all(wait=30)
    run = Content(uri).child(KEY)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["test/rsum"] == 42.0
    assert names.TRIPLETS not in run.data.tags
    assert told == ["triplet records are not attached to their runs: no room for artifacts"]
    monkeypatch.undo()
    assert artifact(synced(uri, store)).read_bytes() == RECORD


def test_a_renamed_experiment_stays_the_sweeps(empty_database: Path, store: Store, tmp_path: Path) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    before = synced(uri, store).dump()
    client = MlflowClient(uri)
    client.rename_experiment(client.get_experiment_by_name("s").experiment_id, "my favourite")
    with SweepTracking(tracked_at(uri, SWEEP), store, live=False) as tracking:
        assert tracking.sync_all(wait=30)
    assert client.get_experiment_by_name("s") is None
    assert Content(uri, "my favourite").dump() == before


def test_a_run_from_before_is_given_what_it_lacks(empty_database: Path, store: Store, tmp_path: Path) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    content = synced(uri, store)
    run = content.child(KEY)
    wanted = {tag: run.data.tags[tag] for tag in (names.OBJECTIVE, names.OBJECTIVE_KEY, names.SETTINGS_KEY)}
    for tag in wanted:
        content.client.delete_tag(run.info.run_id, tag)
    tags = synced(uri, store).child(KEY).data.tags
    assert {tag: tags[tag] for tag in wanted} == wanted


def test_a_run_names_its_data_its_user_its_code_and_its_files(
    empty_database: Path, store: Store, tmp_path: Path
) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    run = synced(uri, store).child(KEY)
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("scenes", "f")
    tags = run.data.tags
    assert tags["mlflow.user"] == (tmp_path / "store").owner()
    assert (tags["mlflow.source.name"], tags["mlflow.source.type"]) == ("goal-sweep launch", "LOCAL")
    assert (store.root / tags[names.CHECKPOINT]).is_file()
    assert tags[names.LOG] == f"{Path(tags[names.CHECKPOINT]).parent}/log.txt"


def test_a_run_of_an_earlier_version_keeps_its_parameters_and_gains_the_rest(
    empty_database: Path, store: Store, tmp_path: Path
) -> None:
    uri = database(empty_database, tmp_path / "tracking")
    content = synced(uri, store)
    run = content.child(KEY)
    content.client.log_param(run.info.run_id, "model.bert.layers", "12")  # of another framework, as earlier runs have
    content.client.set_tag(run.info.run_id, "mlflow.user", "somebody")
    for tag in (names.CHECKPOINT, names.LOG, names.SOURCE_NAME):
        content.client.delete_tag(run.info.run_id, tag)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as connection:
        connection.execute("DELETE FROM inputs")
    again = synced(uri, store).child(KEY)
    assert again.info.run_id == run.info.run_id
    assert again.data.params == run.data.params | {"model.bert.layers": "12"}
    assert again.data.tags == run.data.tags | {"mlflow.user": "somebody"}
    assert [one.dataset.digest for one in again.inputs.dataset_inputs] == ["f"]
