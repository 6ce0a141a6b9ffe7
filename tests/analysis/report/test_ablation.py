"""A sweep with axes: `con/con` does not have tau, `con/cir` does, and both have two learning rates."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import product

import pandas as pd
import pytest

from analysis import AnalysisError, ReportResult
from analysis.run_schema import METRICS
from analysis.statistics import ablations, aggregate, at_first_point, counted, missing_counts
from analysis.tracking import SweepRuns, fetch_runs
from tests.helpers.analysis_cases import SweepWriter, recalls
from tests.helpers.blank_figures import write_texts

pytestmark = pytest.mark.integration

AXES = [
    {"name": "tau", "stage": "", "values": ["10", "1"]},
    {"name": "lr", "stage": "frozen", "values": ["0.1", "0.2"]},
]
POINTS = [f"tau {tau} lr {lr}" for tau, lr in product(("10", "1"), ("0.1", "0.2"))]
PLACES = [("con/con", "*", lr) for lr in ("0.1", "0.2")] + [
    ("con/cir", tau, lr) for tau, lr in product(("10", "1"), ("0.1", "0.2"))
]
SHIFT = {("*", "0.1"): 0, ("*", "0.2"): 1, ("10", "0.1"): 2, ("10", "0.2"): 3, ("1", "0.1"): 4, ("1", "0.2"): 5}


def _parent(sweep: SweepWriter, **tags: str) -> None:
    asked = {"goal.axes": json.dumps({"axes": AXES, "trainings": 12}), "goal.objective_keys": '["con", "cir-10"]'}
    more = {"goal.objective_keys.2": '["cir-1"]', "goal.settings_keys": '["lr-0.1", "lr-0.2"]'}
    sweep.write_parent(seeds=(1, 2), objectives=("con/con", "con/cir"), **(asked | more | tags))


def _write(sweep: SweepWriter, objective: str, tau: str, lr: str, seed: int, **tags: str) -> str:
    metrics = recalls(objective, seed, SHIFT[tau, lr])
    own = {"objective_key": "con" if tau == "*" else f"cir-{tau}", "settings_key": f"lr-{lr}"}
    own |= {"point": f"tau {tau} lr {lr}", "stage_key": f"{objective}-{tau}-{lr}-{seed}"} | tags
    return sweep.write(objective, seed, metrics=metrics, **own)


@pytest.fixture(scope="module")
def sweep(new_sweep: Callable[[str], SweepWriter]) -> SweepWriter:
    """All trainings but `con/cir` at tau 1, lr 0.2, seed 2, and one of an earlier form of the sweep."""
    writer = new_sweep("axes")
    _parent(writer)
    for (objective, tau, lr), seed in product(PLACES, (1, 2)):
        if (objective, tau, lr, seed) != ("con/cir", "1", "0.2", 2):
            _write(writer, objective, tau, lr, seed)
    _write(writer, "con/cir", "10", "0.1", 1, objective_key="cir-7", stage_key="old")
    return writer


@pytest.fixture(scope="module")
def runs(sweep: SweepWriter) -> SweepRuns:
    return fetch_runs(sweep.uri, "axes")


@pytest.fixture(scope="module")
def report(sweep: SweepWriter, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(sweep.uri, "axes", tmp_path_factory.mktemp("axes"))


def test_each_point_is_a_block_and_a_training_at_several_counts_once(runs: SweepRuns) -> None:
    blocks = aggregate(runs)
    assert [block.key.point for block in blocks] == POINTS
    assert len({block.slug for block in blocks}) == 4
    means = [{name: round(cell.mean or 0, 2) for name, cell in block.grids["i2t_r1"].cells.items()} for block in blocks]
    # The mean of seeds 1 and 2 is 0.15 above their objective's number; the last lacks seed 2.
    assert means == [
        {("con", "con"): 40.15, ("con", "cir"): 42.35},
        {("con", "con"): 41.15, ("con", "cir"): 43.35},
        {("con", "con"): 40.15, ("con", "cir"): 44.35},
        {("con", "con"): 41.15, ("con", "cir"): 45.2},
    ]
    assert len(counted(runs)) == 11
    assert missing_counts(runs, blocks) == {"absent": 1}
    assert [len(block.gaps) for block in blocks] == [0, 0, 0, 1]
    (reason,) = (text for text in runs.runs["excluded"] if text)
    assert reason == "trained with other objective parameters than the sweep's (goal.objective_key cir-7)"


def test_statistics_over_blocks_use_the_first_values_alone(runs: SweepRuns) -> None:
    first = at_first_point(runs, counted(runs))
    assert set(first["point"]) == {"tau * lr 0.1", "tau 10 lr 0.1"}
    assert len(first) == 4


def test_an_ablation_varies_one_axis_and_names_what_it_does_not_touch(runs: SweepRuns) -> None:
    tau, lr = ablations(runs, aggregate(runs))
    assert (tau.axis.name, tau.others, tau.untouched) == ("tau", "lr 0.1", {("con", "con")})
    assert (lr.axis.name, lr.others, lr.untouched) == ("lr", "tau 10", frozenset())
    rsum = METRICS["i2t_r1"]
    assert [round(cell.mean or 0, 2) for cell in tau.cells(rsum)["con", "cir"]] == [42.35, 44.35]
    assert [round(cell.mean or 0, 2) for cell in lr.cells(rsum)["con", "con"]] == [40.15, 41.15]


def test_the_report_shows_the_axes(report: ReportResult) -> None:
    assert (report.num_expected, report.num_counted, report.num_failed) == (12, 11, 0)
    text = (report.out_dir / "report.md").read_text()
    assert "11 of 12 trainings (cell and stage) are finished; missing: 1 absent." in text
    assert (
        "AXES: tau 10, 1; lr 0.1, 0.2. The answer and the statistics are those of the first values (tau 10 lr 0.1)"
        in text
    )
    answer, rest = text.split("## Best objective by metric")
    assert "stage frozen, tau 10 lr 0.1" in answer
    assert "stage frozen, tau 1 lr 0.1" not in answer
    for point in POINTS:
        assert f"## MS-COCO, VSE++ (resnet152), stage frozen, {point}\n" in rest
    assert "### Image → Text R@1 by tau, MS-COCO, VSE++ (resnet152), stage frozen" in rest
    assert re.search(r"\| con/cir \| 42\.[34] ± 0\.2 \| 44\.[34] ± 0\.2 \|", rest)
    assert "Held fixed: lr 0.1. con/con does not depend on tau." in rest


def test_the_files_of_an_ablation(report: ReportResult) -> None:
    names = {str(path.relative_to(report.out_dir)) for path in report.files}
    stem = "coco-vsepp-resnet152-frozen-tau"
    assert {"ablation.csv", f"ablation/{stem}.png", f"ablation/{stem}.pdf"} <= names
    assert {f"tables/ablation-{stem}-{metric}.tex" for metric in ("i2t-r1", "t2i-r1", "rsum")} <= names
    assert "tau 10 & tau 1" in (report.out_dir / f"tables/ablation-{stem}-rsum.tex").read_text()
    frame = pd.read_csv(report.out_dir / "ablation.csv")
    one = frame[(frame["axis"] == "tau") & (frame["metric"] == "rsum") & (frame["triplet"] == "cir")]
    assert one["value"].tolist() == [10, 1]
    assert one["n"].tolist() == [2, 2]
    assert frame[frame["axis"] == "tau"].groupby("triplet")["depends"].all().to_dict() == {"cir": True, "con": False}
    cells = pd.read_csv(report.out_dir / "cells.csv")
    assert cells["point"].unique().tolist() == POINTS


def test_the_page_folds_the_other_points(report: ReportResult) -> None:
    page = (report.out_dir / "report.html").read_text()
    first, folded = page.split('<details id="points">')
    assert "The other points of the axes: 3 blocks" in folded
    assert 'id="coco-vsepp-resnet152-frozen-tau_10-lr_0.1"' in first
    assert 'id="coco-vsepp-resnet152-frozen-tau_1-lr_0.2"' in folded
    assert '<details id="ablation">' in folded


@pytest.mark.parametrize("place", ["", "tau 10", "tau 10 lr 0.3", "tau 10 lr 0.1 margin 1"])
def test_a_run_whose_place_is_not_up_to_date_does_not_count(
    new_sweep: Callable[[str], SweepWriter], place: str
) -> None:
    writer = new_sweep(f"stale {place}")
    _parent(writer)
    _write(writer, "con/cir", "10", "0.1", 1, point=place)
    (excluded,) = fetch_runs(writer.uri, writer.name).runs["excluded"]
    assert excluded.startswith("its place among the sweep's axes is not up to date")


def test_a_tag_that_states_no_axes_is_an_error(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("no axes")
    _parent(writer, **{"goal.axes": '["tau"]'})
    _write(writer, "con/cir", "10", "0.1", 1)
    with pytest.raises(AnalysisError, match=r"tag goal.axes of the parent run states no axes"):
        fetch_runs(writer.uri, "no axes")


def test_the_variant_as_an_axis_places_a_run_of_one_variant_in_both(new_sweep: Callable[[str], SweepWriter]) -> None:
    writer = new_sweep("variants")
    axes = [{"name": "variant", "stage": "", "values": ["paper", "released"]}]
    writer.write_parent(
        seeds=(1,), objectives=("con/nca", "sig/nca"), **{"goal.axes": json.dumps({"axes": axes, "trainings": 3})}
    )
    writer.write("con/nca", 1, point="variant paper", stage_key="a")
    writer.write("con/nca", 1, point="variant released", variant="released", stage_key="b")
    writer.write("sig/nca", 1, point="variant *", stage_key="c")
    blocks = aggregate(fetch_runs(writer.uri, "variants"))
    assert [(block.key.variant, block.key.point) for block in blocks] == [
        ("paper", "variant paper"),
        ("released", "variant released"),
    ]
    assert [sum(cell.n for cell in block.grids["rsum"].cells.values()) for block in blocks] == [2, 2]
    assert blocks[1].key.title == "MS-COCO, VSE++ (resnet152), stage frozen, variant released"
