"""MLflow shows what the store has: live, afterwards, again and anew, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient

from goal_sweep.runners.results import asked_row, training_row, update_results
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking import experiment as names
from goal_sweep.runners.tracking import mlflow_tracker
from goal_sweep.runners.tracking.experiment import connect, params_of
from goal_sweep.runners.tracking.mlflow_tracker import MlflowTracker
from goal_sweep.sweeps import ResolvedSweep
from tests.helpers.mlflow_cases import ALONE, KEY, SWEEP, TRAINING, Content, database, folder_of, synced
from tests.helpers.store_cases import claimed, record, result, result_of, train, write_weights
from tests.helpers.tuning_cases import searched, tuned

pytestmark = pytest.mark.integration


def row_of(store: Store) -> dict[str, Any]:
    return training_row(store, TRAINING, store.status([TRAINING])[TRAINING])


def fail(store: Store, reason: str) -> None:
    folder = claimed(folder_of(store))
    folder.write_metrics([record(1)])
    folder.end("failed", reason, counted=True)


def test_a_finished_training_is_one_complete_run(uri: str, store: Store) -> None:
    folder = train(claimed(folder_of(store)), 3)
    content = synced(uri, store, ALONE)
    run = content.child()
    tags = run.data.tags
    assert (run.info.run_name, run.info.status) == ("seed 1 con/con test_byobnet (frozen)", "FINISHED")
    assert {name: text for name, text in tags.items() if name.startswith("goal.")} == {
        "goal.role": "report", "goal.cell": TRAINING.cell.id, "goal.stage": "frozen", "goal.stage_key": KEY,
        "goal.pair": "con", "goal.triplet": "con", "goal.seed": "1", "goal.backbone": "test_byobnet",
        "goal.framework": "vsepp", "goal.dataset": "scenes", "goal.variant": "paper", "goal.status": "done",
        "goal.git_commit": tags["goal.git_commit"], "goal.data_fingerprint": "f",
        "goal.checkpoint": tags["goal.checkpoint"],
    }  # fmt: skip
    assert (store.root / tags["goal.checkpoint"]).is_file()
    (parent,) = content.parents
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", "s")
    assert tags[names.PARENT_RUN] == parent.info.run_id
    table = Path(parent.info.artifact_uri.removeprefix("file://"), "results.parquet")
    assert table.read_bytes() == store.storage.read(store.results_file("s"))
    assert run.data.params == params_of(row_of(store))
    history = content.history()
    assert history.pop("val/rsum") == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert history.pop("train/hinge") == [(1, 1.0), (2, 0.5), (3, 1 / 3)]
    assert history.pop("selected/val_rsum") == [(3, 30.0)]
    metrics = {name: value for name, value in result(3)["metrics"].items() if name.startswith("test/")}
    assert history == {name: [(3, value)] for name, value in metrics.items()}
    assert run.info.end_time == int(result_of(folder)["finished"] * 1000)


def test_a_training_is_shown_while_it_goes_on_and_each_epoch_once(uri: str, store: Store) -> None:
    folder, tracker = claimed(folder_of(store)), MlflowTracker(uri, "s")
    tracker.begin(KEY, asked_row(TRAINING))
    assert Content(uri).child().info.status == "RUNNING"
    for epoch in (1, 1, 2):
        tracker.epoch(KEY, record(epoch))
    assert Content(uri).history()["val/rsum"] == [(1, 10.0), (2, 20.0)]
    assert Content(uri).parents[0].info.status == "RUNNING"
    train(folder, 3)
    tracker.end(KEY, row_of(store))
    content = Content(uri)
    assert content.history()["val/rsum"] == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert (content.child().info.status, content.child().data.tags[names.STATUS]) == ("FINISHED", "done")


def test_what_a_killed_launch_left_running_is_ended_and_goes_on_in_the_same_run(uri: str, store: Store) -> None:
    folder, tracker = claimed(folder_of(store)), MlflowTracker(uri, "s")
    folder.write_metrics([record(1), record(2)])
    tracker.begin(KEY, asked_row(TRAINING))
    tracker.epoch(KEY, record(1))
    folder.end("interrupted", "its launch ended")
    content = synced(uri, store)
    before = content.child().info.run_id
    assert (content.child().info.status, content.child().data.tags[names.STATUS]) == ("KILLED", "waiting")
    assert content.history()["val/rsum"] == [(1, 10.0), (2, 20.0)]
    assert len(content.children) == 1  # the other training has not begun
    MlflowTracker(uri, "s").begin(KEY, asked_row(TRAINING))
    assert (Content(uri).child().info.run_id, Content(uri).child().info.status) == (before, "RUNNING")


def test_a_second_sync_changes_nothing_and_another_database_gets_the_same(
    empty_database: Path, store: Store, tmp_path: Path
) -> None:
    for which in (0, 1):
        train(claimed(folder_of(store, which)), 2)
    one, two = (database(empty_database, tmp_path / name) for name in ("a", "b"))
    first = synced(one, store).dump()
    assert synced(one, store).dump() == first
    assert len(first) == 3
    contents = Content(one), synced(two, store)
    shown = [(each.history(), each.child().data.params, each.child().info.start_time) for each in contents]
    assert shown[0] == shown[1]


def test_a_failure_has_its_reason_and_loses_it_when_mended(uri: str, store: Store) -> None:
    fail(store, "NaN in epoch 2")
    content = synced(uri, store, ALONE)
    run = content.child()
    assert (run.info.status, run.data.tags["goal.reason"]) == ("FAILED", "NaN in epoch 2")
    assert content.parents[0].info.status == "FAILED"
    train(claimed(folder_of(store), "M"), 2)
    mended = synced(uri, store, ALONE).child()
    assert (mended.info.run_id, mended.info.status) == (run.info.run_id, "FINISHED")
    assert "goal.reason" not in mended.data.tags


def test_a_finished_training_that_begins_anew_gets_a_run_of_its_own(uri: str, store: Store) -> None:
    train(claimed(folder_of(store)), 3)
    before = synced(uri, store, ALONE).child().info.run_id
    MlflowTracker(uri, "s").begin(KEY, asked_row(TRAINING))
    after = Content(uri)
    assert after.child().info.run_id != before
    assert after.history() == {}


def test_what_somebody_deleted_comes_back(uri: str, store: Store) -> None:
    for which in (0, 1):
        train(claimed(folder_of(store, which)), 2)
    client, content = MlflowClient(uri), synced(uri, store)
    client.delete_run(content.child().info.run_id)
    assert synced(uri, store).history()["val/rsum"] == [(1, 10.0), (2, 20.0)]
    client.delete_experiment(content.parents[0].info.experiment_id)
    assert len(synced(uri, store).children) == 2
    client.rename_experiment(content.parents[0].info.experiment_id, "my favourite")
    MlflowTracker(uri, "s", live=False).finish(update_results(store, SWEEP))
    assert client.get_experiment_by_name("s") is None
    assert len(Content(uri, "my favourite").parents) == 1


def test_everything_is_written_anew_when_asked_for(uri: str, store: Store) -> None:
    train(claimed(folder_of(store)), 2)
    before, tracker = synced(uri, store), MlflowTracker(uri, "s", live=False)
    before.client.log_metric(before.child().info.run_id, "val/rsum", 99.0, step=2)
    tracker.remove_all()
    tracker.catch_up(update_results(store, SWEEP))
    after = Content(uri)
    assert after.history()["val/rsum"] == [(1, 10.0), (2, 20.0)]
    assert after.parents[0].info.run_id == before.parents[0].info.run_id


def test_a_training_that_an_edit_abandoned_is_marked_until_it_is_asked_for_again(uri: str, store: Store) -> None:
    edited = replace(SWEEP, config=replace(SWEEP.config, stages=(replace(SWEEP.config.stages[0], lr=0.2),)))
    train(claimed(folder_of(store)), 2)
    run_id = synced(uri, store).child().info.run_id
    (former,) = [run for run in synced(uri, store, edited).runs if run.data.tags.get(names.STAGE_KEY) == KEY]
    assert (former.info.run_id, former.data.tags[names.ROLE]) == (run_id, names.FORMER)
    assert synced(uri, store).child().info.run_id == run_id


class Dead(BaseException):
    """An error that no handler catches, to stand for a killed process."""


class DyingClient:
    """A client whose process dies right before or right after one of its writes."""

    def __init__(self, client: Any, dies_at: int) -> None:
        self._client, self._left = client, dies_at

    def __getattr__(self, name: str) -> Any:
        act: Callable[..., Any] = getattr(self._client, name)
        if name.startswith(("get", "search", "_")):
            return act

        def write(*args: Any, **kwargs: Any) -> Any:
            self._tick()
            done = act(*args, **kwargs)
            self._tick()
            return done

        return write

    def _tick(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise Dead


def test_nothing_is_lost_or_logged_twice_wherever_a_writer_dies(
    empty_database: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow_tracker, "_MAX_BATCH", 2)  # several batches for one training
    train(claimed(folder_of(store)), 3)
    finals = {name: [3] for name in [*result(3)["metrics"], "selected/val_rsum"] if name != "val/rsum"}
    for dies_at in range(1, 100, 4):  # dead after one write leaves what dead before the next leaves
        uri, survived = database(empty_database, tmp_path / str(dies_at)), False
        with monkeypatch.context() as patch:
            patch.setattr(names, "connect", lambda uri, at=dies_at: DyingClient(connect(uri), at))
            try:
                synced(uri, store, ALONE)
                survived = True
            except Dead:
                pass
        content = synced(uri, store, ALONE)
        steps = {metric: [step for step, _ in points] for metric, points in content.history().items()}
        assert steps == {"train/hinge": [1, 2, 3], "val/rsum": [1, 2, 3]} | finals, dies_at
        assert content.child().info.status == "FINISHED"
        assert content.child().data.params == params_of(row_of(store))
        assert len(content.parents) == 1
        if survived:
            break
    assert dies_at > 12


def test_candidates_have_their_role_and_no_test_number_and_the_grids_are_tagged(uri: str, store: Store) -> None:
    def chosen(best: int) -> ResolvedSweep:
        """A sweep whose search chose one of three candidates, with all its trainings done."""
        sweep = searched(tuned("objectives={only: [sig/cir]}", "seeds=[1]", budget=3), lambda one: one.number == best)
        for training in sweep.trainings:
            folder = store.folder(training)
            if folder.result() is None:
                folder.claim("L")
                folder.save_with("best-3.safetensors", write_weights)
                folder.write_metrics([record(epoch) for epoch in (1, 2, 3)])
                untested = {"metrics": {"val/rsum": 30.0}} if training.number is not None else {}
                folder.finish({**result(3), **untested})
        return sweep

    content = synced(uri, store, chosen(2))
    candidates = [run for run in content.runs if run.data.tags[names.ROLE] == "candidate"]
    assert len(candidates) == 3
    assert not [name for run in candidates for name in run.data.metrics if name.startswith("test/")]
    assert {run.data.metrics["selected/val_rsum"] for run in candidates} == {30.0}
    assert sorted(run.data.tags["goal.grid"] for run in content.children) == ["default", "tuned"]
    # The sweep now chooses another candidate; the earlier choice is in no grid any more.
    content = synced(uri, store, chosen(0))
    assert sum(run.data.tags[names.ROLE] == names.FORMER for run in content.runs) == 1
