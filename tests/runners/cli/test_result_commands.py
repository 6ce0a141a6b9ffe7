"""`report` and `sync`, from the command line down to MLflow."""

import json
import shutil
import socket
from pathlib import Path

import pytest

from goal_sweep.runners.cli.app import run
from goal_sweep.runners.launch.opened import OpenedSweep
from goal_sweep.sweeps.results import RESULTS_FILE
from tests.helpers.few import few
from tests.helpers.mlflow_cases import Content
from tests.helpers.paths import SCENES
from tests.helpers.results_folder import arguments, finished
from tests.helpers.sweep_cases import opened_in

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("undrawn")]


@pytest.fixture
def sweep(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedSweep:
    """A finished sweep in the store `here`, which commands open without its data."""
    sweep = finished(tmp_path / "here", empty_database)
    monkeypatch.setattr("goal_sweep.runners.cli.options.open_sweep", lambda *given, **options: sweep)
    return sweep


def attached(store: Path) -> set[str]:
    """The files of the report in MLflow."""
    (parent,) = Content(f"sqlite:///{store / 'mlflow.db'}", "scenes").parents
    folder = Path(parent.info.artifact_uri.removeprefix("file://")) / "report"
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_written_and_attached_and_comes_back_with_the_runs(
    sweep: OpenedSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    here = sweep.store.root
    assert run(arguments("report", here)) == 0
    assert "report: 4 of 4 results" in capsys.readouterr().out
    assert "report.html" in attached(here)
    (parent,) = Content(f"sqlite:///{here / 'mlflow.db'}", "scenes").parents
    shutil.rmtree(Path(parent.info.artifact_uri.removeprefix("file://")))
    for more in ([], ["--rewrite"]):
        assert run(arguments("sync", here, *more)) == 0
        assert capsys.readouterr().out == "tracking is up to date, and has the report\n"
        content = Content(f"sqlite:///{here / 'mlflow.db'}", "scenes")
        assert (len(content.children), len(content.parents)) == (4, 1)
        assert "report.html" in attached(here)


def test_a_script_reads_the_report_and_is_warned_of_settings_that_it_does_not_show(
    sweep: OpenedSweep, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--out", str(tmp_path / "other"), "--set", "seeds=[2,3]", "--set", "stages.frozen.lr=7e-3"]
    assert run(arguments("report", sweep.store.root, "--json", *own)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["expected"], told["counted"]) == (4, 4)
    assert Path(told["report"]) == tmp_path / "other" / "report.html"
    assert Path(told["report"]).is_file()
    warned, changed = told["warnings"]
    assert "other settings (then -> here): stages.frozen.lr " in changed
    assert "settings ask for seeds 2, 3." in warned
    assert "as last launched, with seed 1." in warned
    (tmp_path / "own.py").write_text("")
    sheet = tmp_path / "with_plugin.yaml"
    sheet.write_text(f"extends: {SCENES}\nname: scenes\nplugins: [own.py]\n")
    words = [str(sheet), "--store", str(sweep.store.root), "--set", "stages.frozen.lr=7e-3"]
    assert run(["report", *words, "--json", "--out", str(tmp_path / "third")]) == 0
    assert "settings that changed since are not seen" in json.loads(capsys.readouterr().out)["warnings"][0]
    assert run(["status", *words]) == 0
    assert "settings that changed since are not seen" in capsys.readouterr().out


def test_a_report_of_more_seeds_than_the_file_names_says_so(
    tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = finished(tmp_path, empty_database, "seeds=+2").store.root
    for more, said in (([], ["The settings ask for seed 1. The results are"]), (["--seeds", "+2"], [])):
        assert run(arguments("report", here, "--json", *more)) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["seeds"], told["counted"]) == ([1, 2, 3], 12)
        assert [line[: len(said[0])] for line in told["warnings"]] == said
    for change, offered in (("seeds=+2", True), ("stages.frozen.lr=7e-3", False)):  # whose seeds would settle nothing
        assert run(arguments("report", here, "--set", change)) == 0
        assert ("To settle it: goal-sweep launch" in capsys.readouterr().out) is offered


def test_a_sync_with_other_settings_loses_no_result(
    tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = finished(tmp_path, empty_database)
    table = tmp_path / "sweeps" / "scenes" / RESULTS_FILE
    before = table.read_bytes()
    assert run(arguments("sync", tmp_path, "--set", "seeds=[9]")) == 2
    assert f"{len(sweep.trainings)} finished trainings of scenes" in capsys.readouterr().err
    assert table.read_bytes() == before


def test_the_status_says_which_settings_the_report_has(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = sweep.store.root
    assert run(arguments("status", here)) == 0
    assert "other settings" not in capsys.readouterr().out
    other = opened_in(here, "stages.frozen.lr=0.5")
    monkeypatch.setattr("goal_sweep.runners.cli.options.open_sweep", lambda *given, **options: other)
    assert run(arguments("status", here)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "the last launch, which the report shows, had other settings" in last
    assert "stages.frozen.lr" in last


def test_a_sync_while_mlflow_does_not_answer_is_one_line(
    sweep: OpenedSweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = opened_in(sweep.store.root, "tracking=http://127.0.0.1:9")
    monkeypatch.setattr("goal_sweep.runners.cli.options.open_sweep", lambda *given, **options: away)
    assert run(arguments("sync", sweep.store.root)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: cannot write tracking")


@pytest.mark.parametrize("with_results", few([False, True]))
def test_a_server_that_only_a_sweep_file_names_is_not_contacted(
    with_results: bool, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever tries somebody's sweep sends nothing to a host of theirs."""
    sweep, store, called = tmp_path / "theirs.yaml", tmp_path / "store", list[object]()
    sweep.write_text(f"extends: {SCENES}\ntracking: http://127.0.0.1:9\n")
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
def test_a_report_of_a_store_without_results_names_the_store_and_what_to_do(
    there: bool, tmp_path: Path, empty_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    if there:  # launched, but for another sweep
        store.mkdir()
        shutil.copy(empty_database, store / "mlflow.db")
    assert run(["report", "quickstart", "--store", str(store)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert f"no results of quickstart in the store {store}; launch the sweep first, or give its --store" in said
    assert store.exists() == there


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
