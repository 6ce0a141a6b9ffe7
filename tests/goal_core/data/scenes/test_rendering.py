from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from goal_sweep.goal_core.data.scenes.dataset import render_scene
from goal_sweep.goal_core.data.scenes.scene import PATTERNS, SHAPES, SIZES, Draws
from tests.helpers.two_objects import two_objects


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("side", [16, 64, 96])
def test_every_shape_shows_in_its_colour_and_cell(shape: str, side: int) -> None:
    scene = two_objects(0, 2, 2, 1)
    item = replace(scene.objects[0], shape=shape, size="large")
    pixels = render_scene(replace(scene, objects=(item, scene.objects[1])), side, Draws(0)).astype(int)
    red = (pixels[..., 0] - np.maximum(pixels[..., 1], pixels[..., 2])) > 80
    rows, columns = np.nonzero(red)
    assert 0.01 < red.mean() < 0.11
    assert rows.max() < 0.45 * side
    assert columns.min() > 0.55 * side


def test_patterns_and_sizes_differ_in_pixels() -> None:
    scene = two_objects(0, 0, 2, 2)
    grounds = [render_scene(replace(scene, pattern=pattern), 64, Draws(0)) for pattern in PATTERNS]
    spread = [ground[24:40, 24:40].astype(float).std() for ground in grounds]
    assert spread[0] < 8
    assert min(spread[1:]) > 10
    areas = []
    for size in SIZES:
        item = replace(scene.objects[0], size=size)
        pixels = render_scene(replace(scene, objects=(item, scene.objects[1])), 64, Draws(0)).astype(int)
        areas.append(int(((pixels[..., 0] - pixels[..., 1]) > 80).sum()))
    assert areas[1] > 2 * areas[0] > 0
