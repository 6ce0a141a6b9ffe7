from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.text import Text

from goal_sweep.analysis.blocks import Difference
from goal_sweep.analysis.figures.comparisons import Forest, draw_forest
from goal_sweep.analysis.figures.fonts import families
from goal_sweep.sweeps.results import METRICS

FAR = Difference(estimate=-40.0, low=-41.0, high=-39.0, p=0.0)
DIFFERENCES = {
    ("con", "con"): None,
    ("con", "nca"): Difference(estimate=1.0, low=0.5, high=1.5, p=0.01),
    ("sig", "con"): Difference(estimate=-1.0, low=-1.6, high=-0.4, p=0.01),
    ("sig", "nca"): Difference(estimate=0.2, low=-0.3, high=0.7, p=0.9),
    ("sig", "cir"): FAR,
}


def forest(**changes: object) -> Forest:
    values = {
        "title": "block",
        "metric": METRICS["i2t_r1"],
        "best": frozenset({("con", "nca")}),
        "differences": DIFFERENCES,
    }
    return Forest(**(values | {"level": frozenset({("sig", "nca")})} | changes))  # type: ignore[arg-type]


def test_the_interval_decides_what_is_said() -> None:
    found = [difference.verdict for difference in DIFFERENCES.values() if difference is not None]
    assert found == ["better", "worse", "level", "worse"]
    assert Difference(estimate=9.0, low=None, high=None, p=None).verdict == "unknown"


def test_one_objective_far_out_does_not_flatten_the_others() -> None:
    low, high = forest().limits
    assert low < -1.6
    assert high > 1.5
    assert low > FAR.estimate
    without = {key: found for key, found in DIFFERENCES.items() if found is not FAR}
    assert forest(differences=without).limits[0] < -1.6


@pytest.mark.parametrize(("low", "high"), [(-17.0, 5.0), (-17.0, 0.3), (-0.2, 9.0), (-30.0, 31.0)])
def test_each_side_of_zero_with_an_interval_has_a_tick(low: float, high: float) -> None:
    ends = {name: Difference(estimate=at, low=at, high=at, p=0.5) for name, at in zip("ab", (low, high), strict=True)}
    ticks = forest(differences={(name, "con"): change for name, change in ends.items()}).ticks
    assert ticks[0] < 0 < ticks[-1]
    assert 0 in ticks
    assert len(ticks) <= 6
    alone = forest(differences={("a", "con"): replace(ends["b"], estimate=9.0, low=8.0, high=10.0)})
    assert alone.ticks[0] == 0


def test_the_panels_of_a_block_have_the_same_axis() -> None:
    wide = Difference(estimate=2.0, low=-3.0, high=7.0, p=0.5)
    other = {**DIFFERENCES, ("sig", "nca"): wide}
    both = tuple(found for rows in (DIFFERENCES, other) for found in rows.values() if found is not None)
    one, two = forest(beside=both), forest(beside=both, differences=other)
    assert one.limits == two.limits
    assert one.limits != forest().limits
    drawn = [draw_forest(panels, "difference") for panels in ([one, two], [forest(), forest(differences=other)])]
    assert ["same axis" in figure.texts[-1].get_text() for figure in drawn] == [True, False]


@pytest.mark.parametrize("objective", [("con", "nca"), ("my_own_pair_weight<b>", "softened & 猫")])
@pytest.mark.parametrize("num_panels", [1, 2])
@pytest.mark.filterwarnings("ignore:Glyph")  # the machine may lack a font for Chinese
def test_no_text_lies_outside_the_figure(objective: tuple[str, str], num_panels: int) -> None:
    panel = forest(title="猫と犬, VSE++ (vit_base_patch16_224.augreg_in21k), stage frozen, variant without-warm-up")
    named = replace(panel, differences={**DIFFERENCES, objective: FAR}, best=frozenset({objective}))
    with rc_context({"font.family": families("猫と犬")}):
        figure = draw_forest([named] * num_panels, "difference")
        page, texts = figure.bbox, [text for text in figure.findobj(Text) if text.get_text()]
        assert "/".join(objective) in {text.get_text() for text in texts}
        for text in texts:
            box = text.get_window_extent()
            assert page.x0 <= box.x0 <= box.x1 <= page.x1, text.get_text()
            assert page.y0 <= box.y0 <= box.y1 <= page.y1, text.get_text()


def test_the_thick_part_of_a_line_is_of_seeds_alone() -> None:
    both = Difference(estimate=1.0, low=-1.0, high=3.0, p=0.3, of_seeds=0.5)
    (axes,) = draw_forest(
        [forest(differences={("con", "nca"): both}, beyond_seeds=("test images",))], "difference"
    ).axes
    spans = {line.get_linewidth(): np.asarray(line.get_xdata()).tolist() for line in axes.lines}
    assert (spans[0.9], spans[2.6]) == ([-1.0, 3.0], [0.5, 1.5])


def test_each_objective_has_a_row_and_the_far_one_its_number() -> None:
    figure = draw_forest([forest(), forest(title="other")], "difference")
    first, second = figure.axes
    assert [label.get_text() for label in first.get_yticklabels()] == ["/".join(key) for key in DIFFERENCES]
    assert [label.get_text() for label in second.get_yticklabels()] == [""] * 5
    assert [line.get_marker() for line in first.lines].count("D") == 1
    assert [text.get_text() for text in first.texts] == ["-40.0"]
