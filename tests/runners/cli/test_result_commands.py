"""`report`, `import` and `sync`, from the command line down to MLflow."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from runners.cli.app import run
from runners.cli.reports import report_targets, restore
from runners.store.archive import export_results
from tests.helpers.mlflow_cases import template
from tests.helpers.store_cases import write_weights
from tests.helpers.sweep_cases import opened_in

pytestmark = pytest.mark.integration
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report"], "give a sweep, or --published goal_grid"),
        (
            ["report", "quickstart", "--scale", "rainbow"],
            "'--scale': 'rainbow' is not one of 'paper', 'colour-blind'",
        ),
        (
            ["report", "quickstart", "--compare", "mine"],
            "'--compare': 'mine' is not one of 'published'",
        ),
        (
            ["report", "quickstart", "--published", "goal_grid", "--out", "x"],
            "--published needs --out and takes no sweep",
        ),
        (["report", "--published", "goal_grid"], "--published needs --out and takes no sweep"),
        (["report", "quickstart", "quickstart"], "the same sweep is given twice"),
        (["import", "nowhere.zip"], "nowhere.zip is not an archive of results"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    sweep = opened_in(tmp_path / "there")
    for number, training in enumerate(sweep.trainings):
        folder = sweep.store.folder(training)
        folder.claim("L")
        folder.save_with("best.safetensors", write_weights)
        folder.write_metrics([{"epoch": 1, "time": 1.7e9, "metrics": {"val/rsum": 10.0, "train/pos_sim": 0.5}}])
        metrics = {f"test/{name}": 10.0 + number for name in RECALLS}
        folder.finish({"status": "done", "best_epoch": 1, "metrics": metrics | {"test/rsum": sum(metrics.values())}})
    export_results(sweep, sweep.store, tmp_path / "results.zip")
    return tmp_path / "results.zip"


def artifacts(client: MlflowClient, run_id: str) -> set[str]:
    return {item.path for item in client.list_artifacts(run_id, "report")}


def test_imported_results_are_reported_attached_and_restored(
    archive: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    empty = template(tmp_path_factory.mktemp("tracking"))
    shutil.copy(empty, here / "mlflow.db")
    assert run(["import", str(archive), "--store", str(here)]) == 0
    assert "4 results added" in capsys.readouterr().out
    sweep = str(here / "imported" / "quickstart.yaml")
    assert run(["report", sweep]) == 0
    assert "report: 4 of 4 results" in capsys.readouterr().out
    (target,) = report_targets([sweep], [])
    assert target.folder == here / "reports" / "quickstart"
    client = MlflowClient(target.uri)
    (parent,) = client.search_runs(["1"], "tags.`goal.role` = 'sweep'")
    assert "report/report.html" in artifacts(client, parent.info.run_id)
    assert "sig/cir" in parent.data.tags["mlflow.note.content"]
    text = (target.folder / "report.md").read_text()
    assert "## Stages and sweeps side by side" in text
    assert "| stages.frozen.lr | 0.004 |" in text

    (here / "mlflow.db").unlink()
    shutil.rmtree(here / "artifacts")
    shutil.copy(empty, here / "mlflow.db")
    assert run(["import", str(archive), "--store", str(here)]) == 0
    assert restore(target)
    again = MlflowClient(target.uri)
    (rebuilt,) = again.search_runs(["1"], "tags.`goal.role` = 'sweep'")
    assert "report/report.html" in artifacts(again, rebuilt.info.run_id)
    assert rebuilt.data.tags["mlflow.note.content"] == parent.data.tags["mlflow.note.content"]
    assert "mlflow.sharedViewState.goal-scenes-vsepp-test_byobnet-frozen" in again.get_experiment("1").tags
