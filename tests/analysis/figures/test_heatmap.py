from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from analysis.figures.colours import BLUE
from analysis.figures.heatmap import draw_heatmap
from analysis.published import published_blocks
from tests.helpers.analysis_cases import example


def has_colour(image: np.ndarray, colour: str) -> bool:
    wanted = np.array([int(colour[i : i + 2], 16) for i in (0, 2, 4)])
    return bool((np.abs(np.round(image[..., :3] * 255) - wanted).max(axis=-1) == 0).sum() > 500)


def test_best_cell_has_the_full_colour(tmp_path: Path) -> None:
    block = next(b for b in published_blocks() if b.slug == "coco-vsepp-vit_base_patch16-finetune")
    draw_heatmap(block, BLUE, tmp_path / "a.png")
    image = imread(tmp_path / "a.png")
    assert image.shape[1] > 1.5 * image.shape[0] > 900
    assert has_colour(image, BLUE)


@pytest.mark.parametrize("metric", ["R@1", "rsum"])
def test_holes_and_unfamiliar_names_are_drawn(tmp_path: Path, metric: str) -> None:
    draw_heatmap(example(), BLUE, tmp_path / "a.png", metric)
    assert has_colour(imread(tmp_path / "a.png"), "F6F6F6")


def test_the_same_block_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        draw_heatmap(example(), BLUE, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
