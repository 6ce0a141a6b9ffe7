from __future__ import annotations

import re

import pytest

from goal_sweep.goal_core.data.scenes.scene import (
    COLOURS,
    PATTERNS,
    SHAPES,
    TINTS,
    Draws,
    Scene,
    random_scene,
    scene_captions,
    words_for,
)
from tests.helpers.properties import given, settings, st
from tests.helpers.two_objects import two_objects


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
def test_captions_tell_the_truth(seed: int) -> None:
    scene = random_scene(Draws(seed, "scene"))
    present = {(item.colour, item.shape) for item in scene.objects}
    colours = {word: colour for colour in COLOURS for word in words_for(colour)}
    shapes = {word: shape for shape in SHAPES for word in words_for(shape)}
    pattern = re.compile(rf"({'|'.join(colours)}) ({'|'.join(shapes)})\b")
    for caption in scene_captions(scene, Draws(seed, "words")):
        named = {(colours[colour], shapes[shape]) for colour, shape in pattern.findall(caption)}
        assert named
        assert named <= present
        for tint in TINTS:
            assert scene.tint == tint or not re.search(rf"{tint} (background|backdrop)", caption)
        for other in PATTERNS:
            assert scene.pattern == other or other not in caption


@pytest.mark.parametrize(
    ("scene", "allowed"),
    [
        (two_objects(0, 0, 0, 2), {"left"}),
        (two_objects(1, 2, 1, 0), {"right"}),
        (two_objects(0, 1, 2, 1), {"above", "over", "higher"}),
        (two_objects(2, 1, 1, 1), {"below", "under", "beneath"}),
        (two_objects(0, 0, 2, 2), {"left", "above", "over", "higher"}),
    ],
)
def test_relations_point_the_right_way(scene: Scene, allowed: set[str]) -> None:
    opposite = {"left": "right", "right": "left", "above": "below", "over": "under", "higher": "beneath"}
    opposite |= {"below": "above", "under": "over", "beneath": "higher"}
    words = re.compile(r"\b(left|right|above|below|over|under|higher|beneath)\b")
    first = r"(?:red|crimson) (?:circle|disc|round shape)"
    relation = re.compile(rf"{first} (.*)(?:blue|azure) star|(?:blue|azure) star (.*){first}")
    seen = set()
    for seed in range(60):
        for caption in scene_captions(scene, Draws(seed, "words")):
            if re.search(r"corner|\b(in|at)\b|on the \w+( side| edge)? and|on the \w+,", caption):
                continue
            for straight, turned in relation.findall(caption):
                seen |= set(words.findall(straight)) | {opposite[word] for word in words.findall(turned)}
    assert seen
    assert seen <= allowed
