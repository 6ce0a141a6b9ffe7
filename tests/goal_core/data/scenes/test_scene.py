from __future__ import annotations

from goal_sweep.goal_core.data.scenes.scene import COLOURS, SHAPES, SIZES, Draws, random_scene, similar_scene
from tests.helpers.properties import given, settings, st


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32))
def test_random_and_similar_scenes_are_valid(seed: int) -> None:
    draws = Draws(seed)
    scene = random_scene(draws)
    other = similar_scene(scene, draws)
    assert other != scene
    for each in (scene, other):
        assert each.is_valid
        assert list(each.objects) == sorted(each.objects)
        assert len(each.objects) in (2, 3)
        for item in each.objects:
            assert (item.shape in SHAPES, item.colour in COLOURS, item.size in SIZES) == (True, True, True)
