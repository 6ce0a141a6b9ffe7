from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from analysis import AnalysisError, fetch_runs, run_schema
from analysis.tracking import fetch
from tests.helpers.analysis_cases import FINGERPRINT, OBJECTIVES, SweepWriter

pytestmark = pytest.mark.integration


def excluded(runs: pd.DataFrame) -> dict[str, str]:
    return {r["run_name"]: r["excluded"] for r in runs.to_dict("records") if r["excluded"]}


def test_one_row_per_run_with_tags_and_metrics(complete_sweep: SweepWriter) -> None:
    sweep = fetch_runs(complete_sweep.uri, "complete")
    assert len(sweep.runs) == 90
    assert (sweep.runs["excluded"] == "").all()
    assert sweep.seeds == (1, 2, 3)
    assert sweep.stages == ("frozen", "finetune")
    assert [f"{p}/{t}" for p, t in sweep.objectives] == OBJECTIVES
    assert sweep.parent_run_id == complete_sweep.parent
    assert sweep.notes == ()
    row = sweep.runs[(sweep.runs["stage_key"] == "key-sig-ms/cir-2-frozen-resnet152")].iloc[0]
    assert row["run_name"] == "sig-ms/cir resnet152 seed 2 (frozen)"
    words = ["pair", "triplet", "seed", "stage", "backbone", "framework", "dataset", "status", "data_fingerprint"]
    assert list(row[words]) == ["sig-ms", "cir", 2, "frozen", "resnet152", "vsepp", "coco", "done", FINGERPRINT]
    assert row["test/i2t_r1"] == pytest.approx(41.7)
    assert row["val/rsum"] == 302.0  # the latest step


def test_reads_pages_and_never_single_runs(complete_sweep: SweepWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = []
    search = MlflowClient.search_runs

    def counting(self: MlflowClient, *args: object, **kwargs: object) -> object:
        pages.append(kwargs["max_results"])
        return search(self, *args, **kwargs)

    def forbidden(self: MlflowClient, run_id: str) -> None:
        raise AssertionError("get_run in a loop")

    monkeypatch.setattr(fetch, "PAGE", 40)
    monkeypatch.setattr(MlflowClient, "search_runs", counting)
    monkeypatch.setattr(MlflowClient, "get_run", forbidden)
    sweep = fetch_runs(complete_sweep.uri, "complete")
    assert sweep.runs["run_id"].nunique() == 90
    assert pages == [40] * 5  # one page of the parent, three of 90 runs, one of no candidates


def test_what_does_not_count_says_why(broken_sweep: SweepWriter) -> None:
    sweep = fetch_runs(broken_sweep.uri, "broken")
    runs = sweep.runs.set_index("stage_key")["excluded"]
    first = sweep.runs[sweep.runs["run_name"].str.startswith(("sig-ms/cir", "sig-ms/nca")) & (sweep.runs["seed"] == 1)]
    assert list(runs["key-sig-ms/cir-1-frozen-resnet152"]) == [
        "",
        f"duplicate of run {first[first['triplet'] == 'cir'].iloc[0]['run_id']}, with other numbers "
        f"({', '.join(run_schema.TEST_METRICS)})",
    ]
    assert runs["key-of-other-settings"].startswith(
        f"the same training as run {first[first['triplet'] == 'nca'].iloc[0]['run_id']}"
    )
    assert runs["key-sig/con-3-frozen-resnet152"] == "done, but without a finite test/i2t_r1"
    assert runs["key-con/con-7-frozen-resnet152"] == "seed 7 is not in the sweep"
    assert runs["key-sig/nca-1-frozen-resnet152"] == "running"
    assert runs["key-lin/con-1-frozen-resnet152"] == "failed"
    assert runs["key-bad-seed"] == "no readable seed ('one')"
    assert runs[""] == "no goal.stage_key"
    assert (sweep.runs["excluded"] == "").sum() == 38


def test_equal_duplicates_count_once(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("twice")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    ids = [writer.write(), writer.write()]
    runs = fetch_runs(writer.uri, "twice").runs
    assert list(runs["run_id"]) == ids
    assert list(runs["excluded"]) == ["", f"duplicate of run {ids[0]}, with the same numbers"]


def test_without_a_parent_what_was_seen_is_taken_and_said(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("orphans")
    writer.write("sig/cir", 3)
    writer.write("con/con", 1, status="waiting")
    sweep = fetch_runs(writer.uri, "orphans")
    assert sweep.parent_run_id is None
    assert sweep.seeds == (1, 3)
    assert set(sweep.objectives) == {("sig", "cir"), ("con", "con")}
    assert len(sweep.notes) == 2
    assert all("does not state" in note for note in sweep.notes)


def test_errors_are_one_line_and_reading_creates_nothing(complete_sweep: SweepWriter, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"no experiment 'complet' in .*; it contains: .*complete"):
        fetch_runs(complete_sweep.uri, "complet")
    with pytest.raises(AnalysisError, match="no tracking database at"):
        fetch_runs(f"sqlite:///{tmp_path / 'none.db'}", "x")
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_without_runs_is_an_error(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("nothing")
    writer.write_parent()
    with pytest.raises(AnalysisError, match="does not contain a run of a cell yet"):
        fetch_runs(writer.uri, "nothing")


@pytest.mark.parametrize("value", ["1, 2", '{"a": 1}'])
def test_a_damaged_parent_tag_is_an_error(new_sweep: Callable[[str], SweepWriter], value: str) -> None:
    writer = new_sweep(f"damaged {value[0]}")
    writer.write_parent(**{"goal.seeds": value})
    writer.write()
    with pytest.raises(AnalysisError, match=r"tag goal.seeds of the parent run is not"):
        fetch_runs(writer.uri, writer.name)


def test_runs_of_other_settings_than_asked_for_do_not_count(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("edited sweep")
    requested = {"goal.settings_keys": '["new"]', "goal.objective_keys": '["m2"]'}
    writer.write_parent(seeds=[1, 2, 3], objectives=["con/con"], **requested)
    writer.write("con/con", 1, stage_key="old", settings_key="old", objective_key="m2")
    writer.write("con/con", 1, stage_key="new", settings_key="new", objective_key="m2")
    writer.write("con/con", 2, settings_key="new", objective_key="m1")
    writer.write("con/con", 3)  # from before there were keys
    runs = fetch_runs(writer.uri, writer.name).runs
    assert list(runs["excluded"]) == [
        "trained with other settings than the sweep's (goal.settings_key old)",
        "",
        "trained with other objective parameters than the sweep's (goal.objective_key m1)",
        "",
    ]


def test_a_renamed_experiment_is_found_and_said(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("first name")
    writer.write_parent(seeds=[1], objectives=["con/con"])
    writer.write()
    writer.client.rename_experiment(writer.experiment_id, "second name")
    sweep = fetch_runs(writer.uri, "first name")
    assert sweep.experiment == "first name"
    assert sweep.notes[0].startswith("The sweep's experiment is named 'second name' in MLflow")
    assert len(sweep.runs) == 1
