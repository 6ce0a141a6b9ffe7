"""Learning curves: their numbers, and what is said when something is not there."""

from goal_sweep.analysis.figures.blocks import draw_curves
from goal_sweep.analysis.report.sections.blocks import curves, curves_section
from tests.helpers.results_cases import SweepWriter, inputs_of, of_epochs


def test_what_cannot_be_shown_says_why() -> None:
    writer = SweepWriter(seeds=[1], objectives=["con/con"])
    assert curves_section(inputs_of(writer.results())) is None
    writer.write("con/con", 1, epochs={})
    section = curves_section(inputs_of(writer.results()))
    assert section is not None
    assert (section.figures, "no two epochs" in section.paragraphs[0]) == ((), True)


def test_a_curve_is_the_mean_and_the_range_over_the_seeds_that_have_the_epoch() -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig/cir", "lin/nca"])
    for seed in (1, 2):
        writer.write("con/con", seed, epochs=of_epochs(2) | {"epochs/val/rsum": [10.0 * seed, 30.0]})
    writer.write("sig/cir", 1, epochs=of_epochs(1))
    writer.write("lin/nca", 1, epochs={})
    results = writer.results()
    found = curves(results.counted, results.epochs(results.counted, ["val/rsum"]), "val/rsum")
    assert set(found) == {("con", "con"), ("sig", "cir")}
    curve = found["con", "con"]
    assert curve.to_dict("list") == {"epoch": [1, 2], "mean": [15, 30], "min": [10, 30], "max": [20, 30]}
    figure = draw_curves("block", {"val rsum": found}, {("con", "con"): "best, baseline"}, warmup=1)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines[:2]] == ["others", "con/con (best, baseline)"]
    assert len(axes.lines) == 3  # the curves, and where the warm-up ends
    assert len(axes.collections) == 1  # the band of the one that stands out
