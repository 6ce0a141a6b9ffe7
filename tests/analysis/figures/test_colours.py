from __future__ import annotations

import re

import pytest

from analysis.blocks import BlockKey
from analysis.figures.colours import BLUE, GREEN, RED, YELLOW, ColourScale, assign_colours, scale_of, text_colour
from analysis.published.numbers import published_blocks
from tests.helpers.paths import SHARED

PAPER = SHARED / "paper"
BENT = {
    ("coco-vsepp-resnet152-finetune", "i2t"),
    ("f30k-vse_infty-butd-train", "i2t"),
    ("f30k-vse_infty-butd-train", "t2i"),
}
"""Grids that the paper prints with the middle of the scale at the median; the other 17 are linear, as ours."""
CELL = re.compile(r"cellcolor\[HTML\]\{(\w{6})\}([\d.]+) \$\\pm\$ ([\d.]+)")


def key(
    dataset: str = "coco", framework: str = "vsepp", backbone: str = "resnet152", stage: str = "frozen"
) -> BlockKey:
    return BlockKey(
        dataset=dataset, framework=framework, backbone=backbone, stage=stage, variant="paper", data_fingerprint=""
    )


def test_linear_from_white_to_full() -> None:
    scale = ColourScale(low=30.0, high=40.0, full=GREEN)
    assert scale.colour(30.0) == "FFFFFF"
    assert scale.colour(40.0) == GREEN
    assert scale.colour(35.0) == "ABDDC4"
    assert (scale.strength(20.0), scale.strength(50.0)) == (0.0, 1.0)


def test_equal_values_are_white() -> None:
    assert ColourScale(low=5.0, high=5.0, full=RED).colour(5.0) == "FFFFFF"


def test_published_models_keep_their_colour_and_others_take_turns() -> None:
    vit = key(backbone="vit_base_patch16_224")
    f30k, wsl = key("f30k"), key("f30k", "vse_infty", "wsl", "train")
    mine, mine_too, other = key("emoji"), key("emoji", stage="finetune"), key("emoji", backbone="tiny")
    colours = assign_colours([key(), vit, f30k, wsl, mine, mine_too, other])
    assert list(colours.values()) == [GREEN, BLUE, YELLOW, RED, GREEN, GREEN, BLUE]


def test_real_backbone_names_have_the_papers_colours() -> None:
    wsl = "resnext101_32x8d.fb_wsl_ig1b_ft_in1k"
    keys = [
        key(backbone="resnet152.tv_in1k"),
        key(backbone="vit_base_patch16_224.augreg_in21k_ft_in1k", stage="finetune"),
        key("f30k", backbone="vit_base_patch16_224.augreg_in21k_ft_in1k", stage="finetune"),
        key("coco", "vse_infty", wsl, "finetune"),
        key("f30k", "vse_infty", wsl, "finetune"),
        key("f30k", "vse_infty", "butd_region"),
        key("f30k", "vse_infty", "resnext101_32x8d.tv_in1k"),  # not of the paper
    ]
    assert list(assign_colours(keys).values()) == [GREEN, BLUE, YELLOW, RED, RED, GREEN, GREEN]


@pytest.mark.parametrize("full", [GREEN, BLUE, RED, YELLOW])
def test_text_stands_out_on_every_shade(full: str) -> None:
    scale = ColourScale(low=0.0, high=1.0, full=full)
    assert {text_colour(scale.colour(v / 10)) for v in range(11)} == {"000000"}
    assert text_colour("202020") == "FFFFFF"


@pytest.fixture(scope="module")
def printed() -> list[list[list[tuple[str, str, str]]]]:
    """The paper's coloured halves in the order of ``goal_grid.csv``: block, direction, 15 (colour, mean, std)."""
    sources = sorted(PAPER.glob("*.txt")) if PAPER.is_dir() else []
    rows = [CELL.findall(line) for file in sources for line in file.read_text().splitlines() if "cellcolor" in line]
    if not rows:
        pytest.skip("the paper's source is not here")
    blocks = [rows[start : start + 5] for start in range(0, len(rows), 5)]
    return [[[c for row in block for c in row[half : half + 3]] for half in (0, 3)] for block in blocks]


def test_published_numbers_are_the_printed_ones(printed: list[list[list[tuple[str, str, str]]]]) -> None:
    blocks = published_blocks()
    assert len(blocks) == len(printed) == 10
    for block, halves in zip(blocks, printed, strict=True):
        for direction, cells in zip(("i2t", "t2i"), halves, strict=True):
            ours = block.grids[f"{direction}_r1"].cells.values()
            assert [(f"{c.mean:.1f}", f"{c.std:.1f}") for c in ours] == [(mean, std) for _, mean, std in cells]


def test_published_colours_are_within_rounding_of_ours(printed: list[list[list[tuple[str, str, str]]]]) -> None:
    """A printed colour shows the mean before it was rounded, so ours may differ by what 0.05 points are worth.

    That holds for the value and for both ends of the scale, hence 0.1 points of the steeper side of the scale, and one
    step for the rounding of the colour itself.
    """
    colours = assign_colours(block.key for block in published_blocks())
    outside = []
    for block, halves in zip(published_blocks(), printed, strict=True):
        for direction, cells in zip(("i2t", "t2i"), halves, strict=True):
            if (block.slug, direction) in BENT:
                continue
            grid = block.grids[f"{direction}_r1"]
            scale = scale_of(grid, colours[block.key])
            assert scale is not None
            for objective, (colour, mean, _) in zip(grid.cells, cells, strict=True):
                ours = scale.colour(float(mean))
                for at in (0, 2, 4):
                    depth = 255 - int(scale.full[at : at + 2], 16)
                    allowed = depth * 0.1 / (scale.high - scale.low) + 1
                    if abs(int(ours[at : at + 2], 16) - int(colour[at : at + 2], 16)) > allowed:
                        outside.append((block.slug, direction, *objective))
    assert not outside


def test_each_published_half_has_its_full_colour(printed: list[list[list[tuple[str, str, str]]]]) -> None:
    colours = assign_colours(block.key for block in published_blocks())
    for block, halves in zip(published_blocks(), printed, strict=True):
        assert all(colours[block.key] in {colour for colour, _, _ in cells} for cells in halves)
