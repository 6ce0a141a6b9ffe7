"""Synthetic pictures of coloured shapes, five captions each, generated from a seed.

Scenes come in families of four that differ in one respect each, so every image has near misses in its own split.
Captions are incomplete, so no model reaches a recall of 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Dataset, Split, fingerprint_of
from goal_sweep.goal_core.data.scenes.captions import scene_captions
from goal_sweep.goal_core.data.scenes.rendering import render_scene
from goal_sweep.goal_core.data.scenes.scene import Draws, Scene, random_scene, similar_scene

GENERATOR_VERSION = 1
"""Raise it whenever the same parameters would give different pictures or captions."""
FAMILY_SIZE = 4
TRIES_IN_FAMILY = 50
"""Similar scenes to try before taking one of another family, when most descriptions are already taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneReader:
    """Renders a split's images on demand; an :class:`~goal_core.data.dataset.ImageReader`."""

    split: str
    scenes: tuple[Scene, ...]
    side: int
    """Of the square images, pixels."""
    data_seed: int

    def read(self, index: int) -> NDArray[np.uint8]:
        """Render one scene, (side, side, 3) uint8, the same in every process."""
        return render_scene(self.scenes[index], self.side, Draws(self.data_seed, self.split, "drawing", index))

    def label(self, index: int) -> str:
        """Split and number."""
        return f"{self.split} scene {index}"


def open_scenes(config: ScenesConfig) -> Dataset:
    """Describe and caption all scenes; nothing is rendered yet.

    No two images of the dataset, across splits too, have equal descriptions. The test split depends on the seed and its
    own size alone, so sweeps with other numbers of training images are tested on the same images. All images are
    squares of ``config.image.resize`` pixels.
    """
    counts = {"train": config.num_train, "val": config.num_val, "test": config.num_test}
    taken: set[Scene] = set()
    splits = {}
    for name in reversed(SPLIT_NAMES):
        scenes = _new_scenes(config.data_seed, name, counts[name], taken)
        draws = (Draws(config.data_seed, name, "captions", index) for index in range(len(scenes)))
        captions = list(chain.from_iterable(map(scene_captions, scenes, draws)))
        splits[name] = Split(
            name=name,
            captions=captions,
            caption_image=np.arange(len(captions)) // (len(captions) // len(scenes)),
            reader=SceneReader(split=name, scenes=scenes, side=config.image.resize, data_seed=config.data_seed),
        )
    parameters = {"scenes": GENERATOR_VERSION, "data_seed": config.data_seed, **counts}
    return Dataset(
        name=config.name,
        splits={name: splits[name] for name in SPLIT_NAMES},
        fingerprint=fingerprint_of(config.image, config.min_word_count, parameters),
    )


def _new_scenes(data_seed: int, split: str, num_scenes: int, taken: set[Scene]) -> tuple[Scene, ...]:
    """Scenes of one split, none of them in ``taken``, to which they are added."""
    scenes = []
    for index in range(num_scenes):
        scene = family = random_scene(Draws(data_seed, split, "family", index // FAMILY_SIZE))
        draws = Draws(data_seed, split, "scene", index)
        for attempt in count():
            if index % FAMILY_SIZE or attempt:
                scene = similar_scene(family, draws) if attempt < TRIES_IN_FAMILY else random_scene(draws)
            if scene not in taken:
                break
        taken.add(scene)
        scenes.append(scene)
    return tuple(scenes)
