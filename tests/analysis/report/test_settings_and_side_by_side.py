"""Settings that differ are named; stages and sweeps stand side by side with their changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow.entities import Param

from analysis import write_report
from analysis.report.manifest import ReportFolder
from analysis.report.settings import settings_chapter, settings_notes
from analysis.report.side_by_side import columns_of, side_by_side_chapter, side_by_side_frame
from analysis.statistics.aggregate import aggregate
from analysis.tracking.fetch import SweepRuns, fetch_runs
from tests.helpers.analysis_cases import SweepWriter

pytestmark = pytest.mark.integration


def with_params(writer: SweepWriter, run_id: str, **params: str) -> None:
    rows = [Param(name.replace("__", "."), value) for name, value in params.items()]
    writer.client.log_batch(run_id, params=rows)


def test_differing_settings_are_named_with_their_seeds(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("mixed settings")
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"])
    for seed, lr in ((1, "0.001"), (2, "0.001"), (3, "0.002")):
        run_id = writer.write("con/con", seed)
        margin = "0.3" if seed == 1 else "0.2"
        with_params(writer, run_id, stages__frozen__lr=lr, model__embed_dim="64", seed=str(seed))
        with_params(writer, run_id, objective__margin=margin, objective__pair="con")
    sweep = fetch_runs(writer.uri, writer.name)
    blocks = aggregate(sweep)
    (note,) = settings_notes(sweep, blocks)
    assert "differ in their settings: stages.frozen.lr (0.001: seeds 1, 2; 0.002: seed 3)" in note
    assert "con/con objective.margin (0.2: seeds 2, 3; 0.3: seed 1)" in note
    chapter = settings_chapter(sweep, blocks)
    assert chapter is not None
    rows = {row for table in chapter.tables for row in table.rows}
    assert {("model.embed_dim", "64"), ("stages.frozen.lr", "0.001, 0.002"), ("con/con", "margin 0.2, 0.3")} <= rows


@pytest.mark.parametrize("split", ["val", "test"])
def test_selection_on_test_stands_under_every_table(new_sweep: Callable[[str], SweepWriter], split: str) -> None:
    writer = new_sweep(f"selected on {split}")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    with_params(writer, writer.write("con/con", 1), stages__frozen__select_on=split)
    (block,) = aggregate(fetch_runs(writer.uri, writer.name))
    assert f"(selection split: {split})" in block.protocol
    assert ("SELECTED ON TEST" in block.protocol) == (split == "test")


def test_a_stage_that_starts_from_a_selection_on_test_says_so(
    new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("started on test")
    writer.write_parent(seeds=[1], objectives=["con/con"], **{"goal.stages": '["frozen", "finetune"]'})
    with_params(writer, writer.write("con/con", 1), stages__frozen__select_on="test")
    with_params(writer, writer.write("con/con", 1, stage="finetune"), stages__frozen__select_on="test")
    first, second = aggregate(fetch_runs(writer.uri, writer.name))
    assert first.protocol.count("SELECTED ON TEST") == 1
    assert "STARTED FROM A SELECTION ON TEST: each model began as the epoch of stage frozen" in second.protocol
    text = (write_report(writer.uri, writer.name, tmp_path).out_dir / "report.md").read_text()
    assert "SELECTED ON TEST, which flatters every number of theirs in this report" in text


def test_runs_of_other_settings_than_asked_for_do_not_count(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("edited sweep")
    asked = {"goal.settings_keys": '["new"]', "goal.objective_keys": '["m2"]'}
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"], **asked)
    writer.write("con/con", 1, stage_key="old", settings_key="old", objective_key="m2")
    writer.write("con/con", 1, stage_key="new", settings_key="new", objective_key="m2")
    writer.write("con/con", 2, settings_key="new", objective_key="m1")
    writer.write("con/con", 3)  # from before there were keys
    runs = fetch_runs(writer.uri, writer.name).runs
    assert list(runs["excluded"]) == [
        "trained by other settings than those asked for (goal.settings_key old)",
        "",
        "by other parameters of the objective (goal.objective_key m1)",
        "",
    ]


def test_only_a_key_differing_is_a_warning_too(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("keys alone")
    writer.write_parent(seeds=[1, 2], objectives=["con/con"])
    writer.write("con/con", 1, settings_key="a")
    writer.write("con/con", 2, settings_key="b")
    sweep = fetch_runs(writer.uri, writer.name)
    (note,) = settings_notes(sweep, aggregate(sweep))
    assert "goal.settings_key (a, b)" in note
    assert settings_chapter(sweep, aggregate(sweep)) is None


def test_a_renamed_experiment_is_found_and_said(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("first name")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    writer.write()
    writer.client.rename_experiment(writer.experiment_id, "second name")
    sweep = fetch_runs(writer.uri, "first name")
    assert sweep.experiment == "first name"
    assert sweep.notes[0].startswith("The sweep's experiment is called 'second name' in MLflow")
    assert len(sweep.runs) == 1


@pytest.fixture(scope="module")
def complete(complete_sweep: SweepWriter) -> SweepRuns:
    return fetch_runs(complete_sweep.uri, "complete")


def test_stages_of_a_sweep_stand_side_by_side(complete: SweepRuns, tmp_path: Path) -> None:
    groups = columns_of({"complete": aggregate(complete)})
    ((key, columns),) = groups.items()
    assert key == ("coco", "vsepp", "resnet152", "paper")
    assert [column.stage for column in columns] == ["frozen", "finetune"]
    frame = side_by_side_frame(groups)
    changes = frame[(frame["stage"] == "finetune") & (frame["metric"] == "R@1")]["change"]
    assert changes.to_numpy() == pytest.approx(5.0)
    assert (frame[frame["stage"] == "frozen"]["change"] == 0).all()
    chapter = side_by_side_chapter(groups, ReportFolder(tmp_path))
    assert chapter is not None
    assert chapter.tables[0].head == ("objective", "frozen", "finetune", "change")
    assert chapter.tables[0].rows[0] == ("con/con", "40.0 ± 0.3", "45.0 ± 0.3", "+5.0")
    assert (tmp_path / chapter.figures[0].path).stat().st_size > 10_000


def test_sweeps_with_gaps_and_other_data_say_so(
    complete: SweepRuns, new_sweep: Callable[[str], SweepWriter], tmp_path: Path
) -> None:
    writer = new_sweep("another")
    writer.write_parent(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    writer.write("con/con", 1, data_fingerprint="other")
    other = aggregate(fetch_runs(writer.uri, "another"))
    groups = columns_of({"complete": aggregate(complete)[:1], "another": other})
    chapter = side_by_side_chapter(groups, ReportFolder(tmp_path))
    assert chapter is not None
    assert any("different data" in paragraph for paragraph in chapter.paragraphs)
    rows = {row[0]: row for row in chapter.tables[0].rows}
    assert chapter.tables[0].head == ("objective", "complete", "another", "change")
    assert rows["con/con"] == ("con/con", "40.0 ± 0.3", "40.0 ± -- (n=1)", "+0.0")
    assert rows["sig/cir"][2:] == ("--", "--")
    assert rows["lin/con"][2:] == ("--", "--")


def test_one_block_has_nothing_beside_it(complete: SweepRuns, tmp_path: Path) -> None:
    groups = columns_of({"complete": aggregate(complete)[:1]})
    assert groups == {}
    assert side_by_side_chapter(groups, ReportFolder(tmp_path)) is None
