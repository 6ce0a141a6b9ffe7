from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from goal_sweep.analysis.figures.blocks import draw_heatmap
from goal_sweep.analysis.figures.canvas import BLUE, write_figure
from goal_sweep.analysis.published.comparison import published_blocks
from tests.helpers.results_cases import example


def has_colour(image: np.ndarray, colour: str) -> bool:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)])
    return bool((np.abs(np.round(image[..., :3] * 255) - wanted).max(axis=-1) == 0).sum() > 500)


def test_best_cell_has_the_full_colour(tmp_path: Path) -> None:
    block = next(b for b in published_blocks() if b.key.slug == "coco-vsepp-vit_base_patch16-finetune")
    write_figure([tmp_path / "a.png"], draw_heatmap, block, BLUE)
    image = imread(tmp_path / "a.png")
    assert image.shape[1] > 1.5 * image.shape[0] > 900
    assert has_colour(image, BLUE)


@pytest.mark.parametrize("measure", ["R@1", "rsum"])
def test_holes_and_unfamiliar_names_are_drawn(tmp_path: Path, measure: str) -> None:
    write_figure([tmp_path / "a.png"], draw_heatmap, example(), BLUE, measure)
    assert has_colour(imread(tmp_path / "a.png"), "F6F6F6")


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_the_same_block_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    one, other = (tmp_path / f"{name}.{suffix}" for name in "ab")
    for path in (one, other):
        write_figure([path], draw_heatmap, example(), BLUE)
    assert one.read_bytes() == other.read_bytes()
