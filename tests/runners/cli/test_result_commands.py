"""`report`, `import` and `sync`, from the command line down to MLflow."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from goal_sweep.runners.store.archive import ImportOutcome, add_results, export_results, opened_archive
from mlflow import MlflowClient

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.cli.reports import report_target, restore
from goal_sweep.sweeps.results import RESULTS_FILE
from tests.helpers.blank_figures import blank_figures
from tests.helpers.results_folder import arguments, finished
from tests.helpers.store_cases import train, write_weights
from tests.helpers.sweep_cases import opened_in

pytestmark = pytest.mark.integration
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "Missing argument 'sweep'"),
        (
            ["report", "quickstart", "--scale", "rainbow"],
            "'--scale': 'rainbow' is not one of 'paper', 'colour-blind'",
        ),
        (
            ["report", "quickstart", "--compare", "mine"],
            "'--compare': 'mine' is not one of 'published'",
        ),
        (["import", "nowhere.tar.gz"], "there is no file nowhere.tar.gz"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _undrawn() -> Iterator[None]:
    with blank_figures():
        yield


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    sweep = opened_in(tmp_path / "there")
    for number, training in enumerate(sweep.trainings):
        folder = sweep.store.folder(training)
        folder.claim("L")
        folder.save_with("best-1.safetensors", write_weights)
        folder.write_metrics([{"epoch": 1, "time": 1.7e9, "metrics": {"val/rsum": 10.0, "train/pos_sim": 0.5}}])
        metrics = {f"test/{name}": 10.0 + number for name in RECALLS}
        metrics["test/rsum"] = sum(metrics.values())
        folder.finish({"status": "done", "best_epoch": 1, "epochs": 1, "seconds": 2.5, "metrics": metrics})
    export_results(sweep, sweep.store, tmp_path / "results.tar.gz")
    return tmp_path / "results.tar.gz"


def test_a_script_reads_the_report_and_is_warned_of_seeds_that_are_not_there(
    archive: Path, tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(empty_database, here / "mlflow.db")
    assert run(["import", str(archive), "--store", str(here)]) == 0
    sweep = str(next((here / "imported").glob("*.yaml")))
    capsys.readouterr()

    assert run(["report", sweep, "--json", "--set", "seeds=[2,3]"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert (told["expected"], told["counted"], told["seeds"]) == (4, 4, [1])
    assert Path(told["report"]).is_file()
    assert told["missing"] == []
    assert {cell["stage"] for cell in told["cells"]} == {"frozen", "finetune"}
    best = next(cell for cell in told["cells"] if (cell["pair"], cell["triplet"]) == ("sig", "cir"))
    assert (best["framework"], best["mean"], best["std"], best["n"]) == ("vsepp", 11.0, None, 1)
    (warned,) = told["warnings"]
    assert "settings ask for seeds 2, 3." in warned
    assert "as last launched, with seed 1." in warned


def test_a_rebuild_with_other_settings_loses_no_result(
    tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = finished(tmp_path, empty_database)
    table = tmp_path / "sweeps" / "scenes" / RESULTS_FILE
    before = table.read_bytes()
    assert run(arguments("sync", tmp_path, "--set", "seeds=[9]")) == 2
    assert f"{len(sweep.trainings)} finished trainings of scenes" in capsys.readouterr().err
    assert table.read_bytes() == before


def artifacts(client: MlflowClient, run_id: str) -> set[str]:
    return {item.path for item in client.list_artifacts(run_id, "report")}


def test_imported_results_are_reported_attached_and_restored(
    archive: Path, tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(empty_database, here / "mlflow.db")
    assert run(["import", str(archive), "--store", str(here)]) == 0
    assert "4 results added" in capsys.readouterr().out
    sweep = str(here / "imported" / "scenes.yaml")
    assert run(["report", sweep]) == 0
    assert "report: 4 of 4 results" in capsys.readouterr().out
    target = report_target(sweep, [])
    assert target.folder == here / "reports" / "scenes"
    client = MlflowClient(target.uri)
    (parent,) = client.search_runs(["1"], "tags.`goal.role` = 'sweep'")
    assert "report/report.html" in artifacts(client, parent.info.run_id)
    text = (target.folder / "report.md").read_text()
    assert "## Stages side by side" in text
    assert "| stages.frozen.lr | 0.004 |" in text

    origin = f"results.tar.gz (sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()})"
    assert {run.data.tags["goal.imported"] for run in client.search_runs(["1"], "tags.`goal.role` = 'report'")} == {
        origin
    }
    assert {row["imported"] for row in csv.DictReader((target.folder / "runs.csv").open())} == {origin}

    shutil.copytree(here / "imported", tmp_path / "copy" / "imported")
    copied = report_target(str(tmp_path / "copy" / "imported" / "scenes.yaml"), [])
    assert copied.config is not None
    assert (copied.config.store, copied.uri) == (str(tmp_path / "copy"), f"sqlite:///{tmp_path / 'copy' / 'mlflow.db'}")

    (here / "mlflow.db").unlink()
    shutil.rmtree(here / "artifacts")
    shutil.copy(empty_database, here / "mlflow.db")
    assert run(["import", str(archive), "--store", str(here)]) == 0
    assert restore(target)
    again = MlflowClient(target.uri)
    (rebuilt,) = again.search_runs(["1"], "tags.`goal.role` = 'sweep'")
    assert "report/report.html" in artifacts(again, rebuilt.info.run_id)


def test_status_marks_what_was_imported(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = opened_in(tmp_path / "here")
    training = here.trainings[0]
    folder = here.store.folder(training)
    folder.claim("L")
    train(folder, training.stage.epochs)
    with opened_archive(archive) as opened:
        outcome = ImportOutcome(added=[one for one in opened.finished if one != training])
        add_results(opened, outcome, here.store, "sqlite:///x.db")
    monkeypatch.setattr("goal_sweep.runners.launch.opened_sweep.open_sweep", lambda sweep, overrides, **options: here)
    assert run(["status", "quickstart", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    origin = f"results.tar.gz (sha256 {hashlib.sha256(archive.read_bytes()).hexdigest()})"
    assert [row["imported"] for row in rows] == ["", origin, origin, origin]
    assert run(["status", "quickstart"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"i imported: 3 from {origin}, not trained here" in shown
    assert re.search(r"\b11\.0 i\b", shown)
    assert not re.search(r"\b7\.0 i\b", shown)


def test_what_is_imported_while_mlflow_does_not_answer_is_in_the_store(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("goal_sweep.runners.cli.results._END_WAIT_S", 0.1)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = tmp_path / "here"
    assert run(["import", str(archive), "--store", str(store), "--tracking-uri", "http://127.0.0.1:9"]) == 75
    out, err = capsys.readouterr()
    assert "4 results added" in out
    assert "MLflow is not up to date" in err
    assert len(err.splitlines()) == 1
    assert run(["report", str(store / "imported" / "scenes.yaml")]) == 0
    assert "report: 4 of 4 results" in capsys.readouterr().out


@pytest.mark.parametrize("with_results", [False, True])
def test_a_server_that_only_a_sweep_file_names_is_not_contacted(
    with_results: bool, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries somebody's sweep sends nothing to a host of theirs."""
    sweep, store, called = tmp_path / "theirs.yaml", tmp_path / "store", list[object]()
    sweep.write_text("extends: scenes\ntracking: http://127.0.0.1:9\n")
    if with_results:
        finished(store, empty_database)

    def refuse(_: socket.socket, address: object) -> None:
        called.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    ends = {verb: run([verb, str(sweep), *arguments(verb, store)[2:]]) for verb in ("report", "status", "plan", "logs")}
    assert ends == dict.fromkeys(("report", "status", "plan", "logs"), 0) | ({} if with_results else {"report": 2})
    assert run(["validate", str(sweep), *arguments("validate", store)[2:-2]]) == 0
    assert called == []
    if with_results:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
        assert run(["report", str(sweep), *arguments("report", store)[2:], "--set", "tracking=http://127.0.0.1:9"]) == 0
        assert set(called) == {("127.0.0.1", 9)}


@pytest.mark.parametrize("there", [False, True])
def test_a_report_of_a_store_without_results_names_the_store(
    there: bool, tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    if there:  # launched, but for another sweep
        store.mkdir()
        shutil.copy(empty_database, store / "mlflow.db")
    assert run(["report", "quickstart", "--store", str(store)]) == 2
    said = capsys.readouterr().err
    assert f"no results of quickstart in the store {store}" in said
    assert len(said.splitlines()) == 1
    assert store.exists() == there


def test_a_report_of_nothing_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", "quickstart", "--store", str(tmp_path / "none")]) == 2
    said = capsys.readouterr().err
    assert "launch the sweep first, or give its --store" in said
    assert "database" not in said
    assert not (tmp_path / "none").exists()


def test_a_damaged_table_or_database_is_one_line_that_says_what_to_do(
    tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path, empty_database)
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    assert run(arguments("report", tmp_path)) == 0
    assert "not attached to MLflow" in capsys.readouterr().out
    assert run(arguments("ui", tmp_path)) == 2
    assert "mlflow.db is not an SQLite database" in capsys.readouterr().err
    (tmp_path / "sweeps" / "scenes" / RESULTS_FILE).write_bytes(b"no table")
    assert run(arguments("report", tmp_path)) == 2
    assert "the results table of scenes in the store" in capsys.readouterr().err
