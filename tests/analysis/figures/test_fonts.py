"""Figures with names in other scripts: fonts of the machine fill in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.analysis.blocks import Block
from goal_sweep.analysis.figures.canvas import write_figure
from goal_sweep.analysis.figures.colours import GREEN
from goal_sweep.analysis.figures.fonts import families, pdf_font_type, undrawable, wrapped
from goal_sweep.analysis.figures.heatmap import draw_heatmap
from tests.helpers.results_cases import example

NOWHERE = "\U000e0fff"
"""No font has this unassigned character."""


def named(name: str) -> Block:
    """The example with a name as its dataset and as a weight."""
    block = example()
    grids = {
        key: replace(grid, cells={(pair.replace("sig-ms", name), t): cell for (pair, t), cell in grid.cells.items()})
        for key, grid in block.grids.items()
    }
    return replace(block, key=replace(block.key, dataset=name), grids=grids)


def test_matplotlibs_own_font_is_enough_for_its_scripts() -> None:
    assert undrawable("VSE∞ naïve Привет α") == ""
    assert len(families("VSE∞ ± 1")) == 1
    assert len(families("Привет α")) == 2  # the small font, and the whole one
    assert pdf_font_type(families("")) == 42


def test_what_no_font_has_is_known() -> None:
    assert undrawable(f"a{NOWHERE}b\u200d") == NOWHERE


def test_chinese_characters_are_two_letters_wide() -> None:
    assert wrapped("plain words in lines", 11) == ["plain words", "in lines"]
    assert all(len(line) <= 5 for line in wrapped("a" * 10, 5))


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_a_heatmap_in_any_script_is_drawn(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    write_figure([path], draw_heatmap, named(name := f"表情 ภาษา {NOWHERE}"), GREEN, names=name)
    assert path.stat().st_size > 1000


def test_a_font_of_the_machine_fills_in(tmp_path: Path) -> None:
    if undrawable("表情"):
        pytest.skip("no font on this machine has Chinese characters")
    assert len(families("表情")) == 3
    assert all(len(line) <= 3 for line in wrapped("表情表情表情", 6))
    for name in ("表情", "表"):
        write_figure([tmp_path / f"{name}.png"], draw_heatmap, named(name), GREEN, names=name)
    assert (tmp_path / "表情.png").read_bytes() != (tmp_path / "表.png").read_bytes()
