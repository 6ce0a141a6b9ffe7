"""Blocks side by side: stages, and a sweep with axes.

Of its objectives, `con/con` does not have tau, `con/cir` does, and both have two learning rates.
"""

import re
from itertools import product

import pandas as pd
import pytest

from goal_sweep.analysis.report.sections.changes import ablation_section, stages_section
from goal_sweep.analysis.report.writing import ReportResult
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import aggregate, missing_counts
from goal_sweep.sweeps.axes import Axis
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import SweepWriter, inputs_of, recalls

AXES = (Axis(key="objectives.params.tau", values=(10, 1)), Axis(key="stages.frozen.lr", values=(0.1, 0.2)))
POINTS = [f"tau {tau} lr {lr}" for tau, lr in product(("10", "1"), ("0.1", "0.2"))]
PLACES = [("con/con", "*", lr) for lr in ("0.1", "0.2")] + [
    ("con/cir", tau, lr) for tau, lr in product(("10", "1"), ("0.1", "0.2"))
]
SHIFT = {("*", "0.1"): 0, ("*", "0.2"): 1, ("10", "0.1"): 2, ("10", "0.2"): 3, ("1", "0.1"): 4, ("1", "0.2"): 5}


@pytest.fixture(scope="module")
def results() -> SweepResults:
    """All trainings but `con/cir` at tau 1, lr 0.2, seed 2."""
    writer = SweepWriter("axes", seeds=(1, 2), objectives=("con/con", "con/cir"), axes=AXES, points={"frozen": POINTS})
    for (objective, tau, lr), seed in product(PLACES, (1, 2)):
        status = "failed" if (objective, tau, lr, seed) == ("con/cir", "1", "0.2", 2) else "done"
        metrics = recalls(objective, seed, SHIFT[tau, lr]) if status == "done" else {}
        writer.write(objective, seed, status=status, metrics=metrics, configuration=f"tau {tau} lr {lr}")
    return writer.results()


@pytest.fixture(scope="module")
def report(results: SweepResults, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    return write_texts(results, tmp_path_factory.mktemp("axes"))


def test_each_point_is_a_block_and_a_training_at_several_counts_once(results: SweepResults) -> None:
    blocks = aggregate(results)
    assert [block.key.configuration for block in blocks] == POINTS
    assert len({block.key.slug for block in blocks}) == 4
    means = [{name: round(cell.mean or 0, 2) for name, cell in block.grids["i2t_r1"].cells.items()} for block in blocks]
    # The mean of seeds 1 and 2 is 0.15 above their objective's number; the last lacks seed 2.
    assert means == [
        {("con", "con"): 40.15, ("con", "cir"): 42.35},
        {("con", "con"): 41.15, ("con", "cir"): 43.35},
        {("con", "con"): 40.15, ("con", "cir"): 44.35},
        {("con", "con"): 41.15, ("con", "cir"): 45.2},
    ]
    assert len(results.counted) == 11
    assert missing_counts(results, blocks) == {"failed": 1}
    assert [len(block.gaps) for block in blocks] == [0, 0, 0, 1]


def test_an_ablation_varies_one_axis_and_names_what_it_does_not_touch(results: SweepResults) -> None:
    section = ablation_section(inputs_of(results))
    assert section is not None
    tau, *_, lr = [table for table in section.tables if " by " in table.title and "Image" in table.title]
    assert tau.note == "Held fixed: lr 0.1. con/con does not depend on tau."
    assert lr.note == "Held fixed: tau 10."
    assert [(row[0], row[-1]) for row in tau.rows] == [("con/cir", "+2.0")]
    assert [(row[0], row[-1]) for row in lr.rows] == [("con/con", "+1.0"), ("con/cir", "+1.0")]


def test_the_report_shows_the_axes(report: ReportResult) -> None:
    assert (report.num_expected, report.num_counted, report.missing["failed"]) == (12, 11, 1)
    text = (report.folder / "report.md").read_text()
    assert "AXES: tau 10, 1; lr 0.1, 0.2." in text
    answer, rest = text.split(f"## MS-COCO, VSE++ (resnet152), stage frozen, {POINTS[0]}\n")
    assert "- No winner: " in answer
    words = rest.split("## The tables in words")[1].split("\n## ")[0]
    assert "stage frozen, tau 10 lr 0.1" in words
    assert "stage frozen, tau 1 lr 0.1" not in words
    for point in POINTS[1:]:
        assert f"## MS-COCO, VSE++ (resnet152), stage frozen, {point}\n" in rest
    assert "### Image → Text R@1 by tau, MS-COCO, VSE++ (resnet152), stage frozen" in rest
    assert re.search(r"\| con/cir \| 42\.[34] ± 0\.2 \| 44\.[34] ± 0\.2 \| \+2\.0 \|", rest)
    assert "con/con does not depend on tau" in rest
    assert pd.read_csv(report.folder / "cells.csv")["configuration"].unique().tolist() == POINTS
    best = rest.split("### The highest mean at each configuration: R@1")[1].split("###")[0]
    assert all(best.count(f"stage frozen, {point} |") == 2 for point in POINTS)


def test_the_variant_as_an_axis_places_a_training_of_one_variant_in_both() -> None:
    axis = Axis(key="objectives.variant", values=("paper", "released"))
    points = {"frozen": ["variant paper", "variant released"]}
    writer = SweepWriter("variants", seeds=(1,), objectives=("con/nca", "sig/nca"), axes=(axis,), points=points)
    writer.write("con/nca", 1, configuration="variant paper")
    writer.write("con/nca", 1, configuration="variant released", variant="released")
    writer.write("sig/nca", 1, configuration="variant *")
    blocks = aggregate(writer.results())
    assert [(block.key.variant, block.key.configuration) for block in blocks] == [
        ("paper", "variant paper"),
        ("released", "variant released"),
    ]
    assert [sum(cell.n for cell in block.grids["rsum"].cells.values()) for block in blocks] == [2, 2]
    assert blocks[1].key.title == "MS-COCO, VSE++ (resnet152), stage frozen, variant released"


def test_stages_of_a_sweep_stand_side_by_side_and_a_missing_mean_has_no_change() -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir"], stages=["frozen", "finetune"])
    writer.write_all()
    writer.write("con/con", 1, "finetune")
    section = stages_section(inputs_of(writer.results()))
    assert section is not None
    assert section.tables[0].head == ("objective", "frozen", "finetune", "change")
    assert section.tables[0].rows == (
        ("con/con", "40.1 ± 0.2", "45.0 ± -- (n=1)", "+4.9"),
        ("sig/cir", "40.9 ± 0.2", "--", "--"),
    )


def test_one_stage_has_nothing_beside_it(results: SweepResults) -> None:
    assert stages_section(inputs_of(results)) is None
