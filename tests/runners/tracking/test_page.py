"""A sweep's experiment in MLflow: the report and the table among its artifacts, and a folder that was moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import mlflow
import pytest

from goal_sweep.runners.cli.ui import page_link
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking.page import SweepPage
from goal_sweep.runners.tracking.uri import TrackingError
from tests.helpers.mlflow_cases import Content, folder_of, synced
from tests.helpers.store_cases import train

pytestmark = pytest.mark.integration


@pytest.fixture
def page(uri: str, store: Store) -> SweepPage:
    for which in (0, 1):
        folder = folder_of(store, which)
        folder.claim("L")
        train(folder, 2)
    synced(uri, store, live=False)
    return SweepPage(uri, "s")


def test_the_experiment_is_shown_as_one_of_training(page: SweepPage) -> None:
    tags = page.client.get_experiment(page.experiment_id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"  # or else the page shows traces


def test_the_line_for_python_finds_the_runs_whatever_is_set_there(page: SweepPage, tmp_path: Path) -> None:
    *_, line = page_link(page.uri, "s", page.uri).splitlines()
    code = line.removeprefix("in Python: ").replace("mlflow.search_runs", "runs = mlflow.search_runs")
    where = {"mlflow": mlflow}
    before = mlflow.get_tracking_uri()
    try:
        exec(code, where)
    finally:
        mlflow.set_tracking_uri(before)
    assert len(where["runs"]) == 2


def test_attaching_replaces_the_report_of_the_sweeps_run_and_nothing_else(page: SweepPage, tmp_path: Path) -> None:
    folder = tmp_path / "report"
    (folder / "tables").mkdir(parents=True)
    for name in ("report.md", "tables/a.md", "tables/b.md", "private.txt"):
        (folder / name).write_text(name)
    run = page.parent.info.run_id
    page.attach_report(folder, ["report.md", "tables/a.md"])
    page.attach_report(folder, ["report.md", "tables/b.md"])
    assert {item.path for item in page.client.list_artifacts(run, "report")} == {"report/report.md", "report/tables"}
    assert [item.path for item in page.client.list_artifacts(run, "report/tables")] == ["report/tables/b.md"]
    assert [item.path for item in page.client.list_artifacts(run) if not item.is_dir] == ["results.parquet"]


def test_the_results_table_is_read_back_and_its_absence_is_one_line(page: SweepPage, store: Store) -> None:
    assert page.results_table() == store.read_results("s")
    Path(page.parent.info.artifact_uri.removeprefix("file://"), "results.parquet").unlink()
    with pytest.raises(TrackingError, match=r"results\.parquet") as error:
        page.results_table()
    assert "\n" not in str(error.value)
    with pytest.raises(TrackingError, match="no experiment 'other'"):
        SweepPage(page.uri, "other")


def test_a_database_that_was_copied_is_written_anew_beside_its_files(
    page: SweepPage, store: Store, tmp_path: Path
) -> None:
    database = Path(page.uri.removeprefix("sqlite:///"))
    (tmp_path / "elsewhere").mkdir()
    moved = f"sqlite:///{shutil.copy(database, tmp_path / 'elsewhere' / 'mlflow.db')}"
    with pytest.raises(TrackingError, match="was copied or moved; goal-sweep sync writes its runs again"):
        SweepPage(moved, "s")
    synced(moved, store, live=False)
    assert Path(SweepPage(moved, "s").parent.info.artifact_uri.removeprefix("file://")).is_relative_to(
        tmp_path / "elsewhere"
    )
    assert len(Content(moved).children) == 2
