"""A sweep's experiment in MLflow: the report and the table among its artifacts, and a folder that was moved."""

import socket
from pathlib import Path

import mlflow
import pytest

from goal_sweep.runners.cli.results import _server, _wait_until_it_answers, page_link
from goal_sweep.runners.store import Store
from goal_sweep.runners.tracking.experiment import SweepPage
from goal_sweep.runners.tracking.uri import TrackingError
from tests.helpers.chromium import CHROMIUM, Browser
from tests.helpers.mlflow_cases import KEY, Content, folder_of, synced
from tests.helpers.store_cases import claimed, train

pytestmark = pytest.mark.integration


@pytest.fixture
def page(uri: str, store: Store) -> SweepPage:
    for which in (0, 1):
        train(claimed(folder_of(store, which)), 2)
    synced(uri, store)
    return SweepPage(uri, "s")


def test_the_experiment_is_shown_as_one_of_training_and_found_from_python(page: SweepPage) -> None:
    tags = Content(page.uri).client.get_experiment(page.experiment_id).tags
    assert tags["mlflow.experimentKind"] == "custom_model_development"  # or else the page shows traces
    *_, line = page_link(page.uri, "s", page.uri).splitlines()
    code = line.removeprefix("in Python: ").replace("mlflow.search_runs", "runs = mlflow.search_runs")
    where = {"mlflow": mlflow}
    before = mlflow.get_tracking_uri()
    try:
        exec(code, where)
    finally:
        mlflow.set_tracking_uri(before)
    assert len(where["runs"]) == 2


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the path")
def test_the_links_show_all_runs_with_their_numbers_and_the_run_of_a_training(
    page: SweepPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = f"http://127.0.0.1:{port}"
    monkeypatch.setattr("goal_sweep.runners.tracking.experiment.LOCAL_PAGE", server)
    with _server(page.uri, port) as process, Browser(tmp_path) as browser:
        _wait_until_it_answers(process, server)
        browser.open(page_link(page.uri, "s", server).splitlines()[0])
        browser.wait_for("2 matching runs")
        browser.wait_for("test/t2i_r1")
        browser.open("about:blank")
        browser.open(page.run_address.replace("{training}", KEY))
        browser.wait_for("1 matching run")
        browser.wait_for("con/con test")
        assert "sig-ms/cir" not in browser.text()


def test_attaching_replaces_the_report_of_the_sweeps_run_and_nothing_else(page: SweepPage, tmp_path: Path) -> None:
    folder, content = tmp_path / "report", Content(page.uri)
    (folder / "tables").mkdir(parents=True)
    for name in ("report.md", "tables/a.md", "tables/b.md", "private.txt"):
        (folder / name).write_text(name)
    page.attach_report(folder, ["report.md", "tables/a.md"], ["Use con/nca.", "Avoid cir."])
    page.attach_report(folder, ["report.md", "tables/b.md"])
    assert Content(page.uri).parents[0].data.tags["mlflow.note.content"] == "- Use con/nca.\n- Avoid cir."
    artifacts = Path(content.parents[0].info.artifact_uri.removeprefix("file://"))
    found = {path.relative_to(artifacts).as_posix() for path in artifacts.rglob("*") if path.is_file()}
    assert found == {"results.parquet", "report/report.md", "report/tables/b.md"}


def test_what_is_not_there_is_one_line(page: SweepPage, tmp_path: Path) -> None:
    for uri, name, said in (
        (page.uri, "other", "no experiment 'other'"),
        (f"sqlite:///{tmp_path}/x.db", "s", "no tra"),
    ):
        with pytest.raises(TrackingError, match=said) as error:
            SweepPage(uri, name)
        assert "\n" not in str(error.value)
