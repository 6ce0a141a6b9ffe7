"""The results table says what the store has, and reads again only what has changed."""

import hashlib
import random
from dataclasses import replace
from typing import Any

import pytest

from goal_sweep.goal_core.checkpoints import RANKS
from goal_sweep.runners.launch.tuning import refreshed_results
from goal_sweep.runners.results import asked_row, listed_again, read_results, stored_row, training_row, update_results
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.runners.store.provenance import gather
from goal_sweep.sweeps import ResolvedSweep, Training
from goal_sweep.sweeps.results import COLUMNS
from tests.helpers.mlflow_cases import ALONE, SWEEP, TRAINING, folder_of
from tests.helpers.store_cases import claimed, npz, record, result, save, train, write_weights
from tests.helpers.tuning_cases import searched, tuned


def row_of(store: Store, sweep: ResolvedSweep = SWEEP) -> dict[str, Any]:
    return next(update_results(store, sweep).rows())


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Training]:
    """The trainings whose files were read."""
    seen: list[Training] = []

    def counted(store: Store, training: Training, status: TrainingStatus) -> dict[str, Any]:
        seen.append(training)
        return stored_row(store, training, status)

    monkeypatch.setattr("goal_sweep.runners.results.stored_row", counted)
    return seen


def test_a_finished_training_is_a_row_with_everything(store: Store) -> None:
    folder = claimed(folder_of(store))
    save(folder, RANKS, npz("a record"))
    train(folder, 3)
    done, waiting = update_results(store, SWEEP).rows()
    assert set(COLUMNS) <= set(done)
    assert {name: done[name] for name in asked_row(TRAINING)} == asked_row(TRAINING)
    assert (done["status"], done["attempts"], done["best_epoch"], done["seconds"]) == ("done", 1, 3, 2.5)
    assert (done["test/rsum"], done["val/rsum"]) == (42.0, 30.0)
    assert (done["epochs/epoch"], done["epochs/val/rsum"]) == ([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    assert done["epochs/time"][0] == 1_700_000_001.0
    assert (store.root / done["checkpoint"]).is_file()
    assert done["ranks"] == npz("a record")
    assert done["setting/stages.frozen.lr"] == "0.1"
    assert done["ended"] >= done["started"]
    assert (waiting["status"], waiting["attempts"], waiting["test/rsum"], waiting["epochs/epoch"]) == (
        ("waiting", 0, None, None)
    )
    row = training_row(store, TRAINING, store.status([TRAINING])[TRAINING])
    assert {name: done[name] for name in row} == row


def test_only_what_changed_is_read_again(store: Store, reads: list[Training]) -> None:
    folder = train(claimed(folder_of(store)), 2)
    first = update_results(store, SWEEP)
    assert reads == SWEEP.trainings
    reads.clear()
    written = store.storage.read(store.results_file("s"))
    again = update_results(store, SWEEP)
    assert reads == SWEEP.trainings[1:]  # the finished one is kept
    assert store.storage.read(store.results_file("s")) == written
    assert next(again.rows()) == next(first.rows())
    train(claimed(folder_of(store, 1)), 1)
    assert [row["status"] for row in update_results(store, SWEEP).rows()] == ["done", "done"]
    folder.forget_result("its weights are damaged")
    train(claimed(folder_of(store), "M"), 1)
    assert next(update_results(store, SWEEP).rows())["best_epoch"] == 1


@pytest.mark.parametrize("seed", range(25))
def test_a_bit_that_flips_in_the_table_never_changes_a_number(store: Store, seed: int) -> None:
    folder = claimed(folder_of(store))
    save(folder, RANKS, npz("ranks"))
    train(folder, 2)
    table = update_results(store, SWEEP)
    before, content = [*table.rows()], bytearray(table.content)
    content[random.Random(seed).randrange(len(content))] ^= 1 << seed % 8
    store.storage.replace(store.results_file("s"), bytes(content))
    assert [*update_results(store, SWEEP).rows()] == before


@pytest.mark.parametrize("name", ["metrics.jsonl", RANKS])
def test_a_damaged_file_of_a_finished_training_is_named_and_read_again_when_it_is_whole(store: Store, name: str):
    folder = claimed(folder_of(store))
    save(folder, RANKS, npz("ranks"))
    train(folder, 2)
    path = folder.path(name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    row = row_of(store)
    assert (row["status"], row["test/rsum"]) == ("done", 42.0)
    assert row["reason"].startswith(f"{path} is damaged: ")
    path.write_bytes(whole)
    assert row_of(store)["reason"] == ""
    assert row_of(store)["ranks"] == npz("ranks")


def test_failure_has_its_reason_and_loses_it_when_mended(store: Store) -> None:
    folder = claimed(folder_of(store))
    folder.write_metrics([record(1)])
    folder.end("failed", "NaN in \x1b[31m epoch 2", counted=True)
    failed = row_of(store, ALONE)
    assert (failed["status"], failed["epochs/epoch"]) == ("failed", [1.0])
    assert failed["reason"] == "NaN in \N{REPLACEMENT CHARACTER}[31m epoch 2"  # reports commands no terminal
    folder.claim("M")
    train(folder, 2)
    assert (row_of(store, ALONE)["status"], row_of(store, ALONE)["reason"]) == ("done", "")


def test_what_speaks_against_the_numbers_is_in_the_row(store: Store) -> None:
    stage = replace(TRAINING.stage, warmup_epochs=2)
    sweep = replace(ALONE, config=replace(ALONE.config, stages=(stage,)))
    folder = claimed(store.folder(sweep.trainings[0]))
    folder.save_with("best-3.safetensors", write_weights)
    weak = record(3, 40.0)
    weak["metrics"]["train/objective_to_matching"] = 0.0013
    folder.write_metrics([record(1, 50.0), record(2, 80.0), weak])
    folder.finish(result(3))
    row = row_of(store, sweep)
    assert "40.0" in row["below_warmup"]
    assert "80.0" in row["below_warmup"]
    assert "0.0013" in row["weak_objective"]


def test_what_a_modified_tree_trained_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(b"+1").hexdigest()
    modified = replace(gather(), git_commit="c0ffee", git_diff="+1", git_diff_sha256=digest)
    monkeypatch.setattr("goal_sweep.runners.store.attempts.gather", lambda: modified)
    train(claimed(folder_of(store)), 2)
    row = row_of(store)
    assert (row["git_commit"], row["git_diff"]) == ("c0ffee", digest[:12])


def test_a_sweep_can_be_listed_again_from_its_table_without_its_data(store: Store) -> None:
    again = listed_again(update_results(store, SWEEP).header, SWEEP.config)
    assert again.trainings == SWEEP.trainings
    train(claimed(folder_of(store)), 2)
    refreshed = refreshed_results(store, replace(SWEEP.config, seeds=(7,)))
    assert refreshed is not None
    assert refreshed.content == store.storage.read(store.results_file("s"))
    read = read_results(store, "s")
    assert read is not None
    assert [row["status"] for row in read.rows()] == ["done", "waiting"]
    assert read.header.seeds == (1,)  # as it was launched
    assert refreshed_results(store, replace(SWEEP.config, name="never-launched")) is None


def float_of_number(training: Training) -> float:
    return float(training.number or 0)


def test_the_table_of_a_search_has_its_candidates_its_grids_and_its_study(store: Store) -> None:
    sweep = tuned("objectives={only: [sig/cir]}", "seeds=[1]", budget=3)
    half = searched(sweep, float_of_number, done=lambda one: one.number == 0)
    assert update_results(store, half).header.studies == ()
    chosen = searched(sweep, float_of_number)
    written = update_results(store, chosen)
    places = [(row["role"], row["candidate"], row["grid"]) for row in written.rows(("role", "candidate", "grid"))]
    assert sorted(places, key=str) == [
        ("candidate", 0, ""),
        ("candidate", 1, ""),
        ("candidate", 2, ""),
        ("report", None, "default"),
        ("report", None, "tuned"),
    ]
    (study,) = written.header.studies
    assert (study.objective, study.chosen) == (("sig", "cir"), 2)
    assert [tried.score for tried in study.candidates] == [0.0, 1.0, 2.0]
    listed = listed_again(written.header, chosen.config)
    assert [one.key for one in listed.trainings] == [one.key for one in chosen.trainings]
