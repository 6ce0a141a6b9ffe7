"""What MLflow's own page says of a sweep: the answer in words, and saved views that group by objective."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from runners.store import Store
from runners.tracking.page import BlockOnPage, SweepPage
from runners.tracking.uri import TrackingError
from tests.helpers.mlflow_cases import folder_of, synced
from tests.helpers.store_cases import train

pytestmark = pytest.mark.integration
NOTE = "mlflow.note.content"
BLOCK = BlockOnPage(
    slug="scenes-frozen",
    title="scenes, stage frozen",
    headline="highest rsum **sig-ms/cir** 42.0",
    ranking="| rank | objective |\n| ---: | :--- |\n| 1 | sig-ms/cir |",
    tags={"goal.role": "report", "goal.stage": "frozen"},
    grid="",
    groups=("goal.objective",),
    open_group="sig-ms/cir",
    objectives=("con/con", "sig-ms/cir"),
)


@pytest.fixture
def page(uri: str, store: Store) -> SweepPage:
    for which in (0, 1):
        folder = folder_of(store, which)
        folder.claim("L")
        train(folder, 2)
    synced(uri, store, live=False)
    return SweepPage(uri, "s")


def of_experiment(page: SweepPage) -> dict[str, str]:
    return dict(page.client.get_experiment(page.experiment_id).tags)


def test_the_description_has_a_line_for_each_block_and_the_run_its_ranking(page: SweepPage) -> None:
    page.describe([BLOCK], ["IMPORTED: some."])
    short = of_experiment(page)[NOTE]
    address = f"(#/experiments/{page.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={BLOCK.view})"
    assert f"{BLOCK.title}: {BLOCK.headline} ([runs by objective]{address})" in short
    assert "IMPORTED: some." in short
    full = page.client.get_run(page.parent.info.run_id).data.tags[NOTE]
    assert full.startswith(short)
    assert BLOCK.ranking in full


def test_a_saved_view_groups_by_objective_and_orders_by_rsum(page: SweepPage) -> None:
    page.save_views([BLOCK])
    tags = of_experiment(page)
    assert NOTE not in tags
    kind, packed = tags[f"mlflow.sharedViewState.{BLOCK.view}"].split(";")
    assert kind == "deflate"
    state = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "goal.objective"}]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`test/rsum`", False)
    assert {name for name, shown in state["groupsExpanded"].items() if shown} == {"tag.goal.objective.sig-ms/cir"}
    assert tags["mlflow.experimentKind"] == "custom_model_development"  # or else the page shows traces
    runs = page.client.search_runs([page.experiment_id], state["searchFilter"], order_by=[state["orderByKey"]])
    assert len(runs) == 2  # what the page asks for is valid


def test_a_description_longer_than_mlflow_takes_is_cut_at_a_block_and_says_so(page: SweepPage) -> None:
    blocks = [replace(BLOCK, slug=f"block-{number}") for number in range(60)]
    page.describe(blocks[:5])
    assert of_experiment(page)[NOTE].count("highest rsum") == 5
    again = SweepPage(page.uri, "s")
    again.describe(blocks)
    cut = of_experiment(page)[NOTE]
    shown = cut.count("highest rsum")
    assert 5 < shown < 60
    assert cut.endswith(f"{60 - shown} more in the report among the run's artifacts.")
    assert len(cut) <= 5000


def test_what_a_person_wrote_stays(page: SweepPage) -> None:
    page.describe([BLOCK])
    page.client.set_experiment_tag(page.experiment_id, NOTE, "my own words")
    SweepPage(page.uri, "s").describe([replace(BLOCK, headline="another")])
    assert of_experiment(page)[NOTE] == "my own words"


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
