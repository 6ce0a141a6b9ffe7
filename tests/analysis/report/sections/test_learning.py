"""The sections on learning and its costs: the numbers of curves, and what is said when something is not there."""

from __future__ import annotations

from goal_sweep.analysis.figures.training import draw_curves
from goal_sweep.analysis.report.parts import Section
from goal_sweep.analysis.report.sections.learning import curves, learning_sections
from goal_sweep.analysis.results import SweepResults
from tests.helpers.results_cases import SweepWriter, inputs_of, of_epochs


def sections_of(writer: SweepWriter) -> dict[str, Section]:
    return {section.anchor: section for section in learning_sections(inputs_of(writer.results()))}


def test_the_sections_name_what_they_cannot_show() -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir"])
    measured = of_epochs(2, train__pos_sim=0.1)
    writer.write("con/con", 1, epochs=measured, step_ms=6.0)
    writer.write("con/con", 2, epochs=measured, step_ms=8.0)
    writer.write("sig/cir", 1, epochs=measured, step_ms=14.0, val_s=3.0)
    writer.write("sig/cir", 2, epochs={})
    found = sections_of(writer)
    assert list(found) == ["curves", "costs"]
    assert len(found["curves"].figures) == 1
    assert "sig/cir resnet152 seed 2 (frozen)" in " ".join(found["curves"].paragraphs)
    (table,) = found["costs"].tables
    assert table.rows == (
        ("con/con", "7.0", "1.00", "--", "9.0"),
        ("sig/cir", "14.0", "2.00", "3.0", "9.0"),
    )


def test_a_section_that_cannot_be_shown_says_why() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"])
    writer.write("con/con", 1, epochs={})
    found = sections_of(writer)
    assert [*found["curves"].figures, *found["costs"].tables] == []
    assert all(section.paragraphs for section in found.values())
    assert sections_of(SweepWriter(seeds=[1], objectives=["con/con"])) == {}


def test_a_stage_of_one_epoch_has_no_curves() -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir", "sig/con"], stages=["frozen", "finetune"])
    for objective in ("con/con", "sig/cir", "sig/con"):
        for seed in (1, 2):
            writer.write(objective, seed)
            writer.write(objective, seed, "finetune", epochs=of_epochs(1))
    curves = sections_of(writer)["curves"]
    assert [figure.title for figure in curves.figures] == ["Learning curves: MS-COCO, VSE++ (resnet152), stage frozen"]
    assert any("one epoch: MS-COCO, VSE++ (resnet152), stage finetune" in line for line in curves.paragraphs)


def of_two() -> SweepResults:
    """Two seeds of con/con and one of sig/cir, with their epochs."""
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir", "lin/nca"])
    for seed in (1, 2):
        writer.write("con/con", seed, epochs=of_epochs(2) | {"epochs/val/rsum": [10.0 * seed, 30.0]})
    writer.write("sig/cir", 1, epochs=of_epochs(1))
    writer.write("lin/nca", 1, epochs={})
    return writer.results()


def test_a_curve_is_the_mean_and_the_range_over_the_seeds_that_have_the_epoch() -> None:
    results = of_two()
    found = curves(results.counted, results.epochs(results.counted, ["val/rsum"]), "val/rsum")
    assert set(found) == {("con", "con"), ("sig", "cir")}
    curve = found["con", "con"]
    assert curve.to_dict("list") == {"epoch": [1, 2], "mean": [15, 30], "min": [10, 30], "max": [20, 30]}
    figure = draw_curves("block", {"val rsum": found}, {("con", "con"): "best, baseline"}, warmup=1)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines[:2]] == ["others", "con/con (best, baseline)"]
    assert len(axes.lines) == 3  # the curves, and where the warm-up ends
    assert len(axes.collections) == 1  # the band of the one that stands out
