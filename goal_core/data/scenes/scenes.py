"""`scenes`: a seeded synthetic dataset of drawn scenes, five captions each, that needs no download.

Scenes come in families of four that differ in one respect each, so every image has near misses in its own split, and
captions leave things out, so no model reaches 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from goal_core.data.config import ScenesConfig
from goal_core.data.fingerprint import fingerprint_of
from goal_core.data.scenes.captions import scene_captions
from goal_core.data.scenes.description import Draws, Scene, random_scene, similar_scene
from goal_core.data.scenes.drawing import draw_scene
from goal_core.data.split import SPLIT_NAMES, Split, split_of

GENERATOR_VERSION = 1
"""Raised whenever the same parameters would give other pictures or captions."""
FAMILY_SIZE = 4
_TRIES_IN_FAMILY = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneReader:
    """Draws a split's images when they are asked for; an :class:`~goal_core.data.split.ImageReader`."""

    split: str
    scenes: tuple[Scene, ...]
    side: int
    """Of the square images, pixels."""
    data_seed: int

    def __len__(self) -> int:
        """Number of images."""
        return len(self.scenes)

    def read(self, index: int) -> NDArray[np.uint8]:
        """Draw one scene, (side, side, 3) uint8, the same in every process."""
        return draw_scene(self.scenes[index], self.side, Draws(self.data_seed, self.split, "drawing", index))

    def label(self, index: int) -> str:
        """Split and number."""
        return f"{self.split} scene {index}"


def make_scenes(config: ScenesConfig) -> tuple[dict[str, Split], str]:
    """Describe and caption all scenes; nothing is drawn yet.

    No two images of the dataset have equal descriptions, across splits too. The test split depends on the seed and
    its own size alone, so sweeps with other numbers of training images are tested on the same images.

    Returns:
        The splits train, val and test, whose images are squares of ``config.image.resize`` pixels, and the
        fingerprint.
    """
    counts = {"train": config.num_train, "val": config.num_val, "test": config.num_test}
    taken: set[Scene] = set()
    splits = {}
    for name in reversed(SPLIT_NAMES):
        scenes = _unlike_scenes(config.data_seed, name, counts[name], taken)
        captions = [
            scene_captions(scene, Draws(config.data_seed, name, "captions", index))
            for index, scene in enumerate(scenes)
        ]
        reader = SceneReader(split=name, scenes=scenes, side=config.image.resize, data_seed=config.data_seed)
        splits[name] = split_of(name, captions, reader)
    parameters = {"scenes": GENERATOR_VERSION, "data_seed": config.data_seed, **counts}
    fingerprint = fingerprint_of(config.image, config.min_word_count, [parameters])
    return {name: splits[name] for name in SPLIT_NAMES}, fingerprint


def _unlike_scenes(data_seed: int, split: str, num_scenes: int, taken: set[Scene]) -> tuple[Scene, ...]:
    """Scenes of one split, none of them in ``taken``, to which they are added."""
    scenes = []
    for index in range(num_scenes):
        family = random_scene(Draws(data_seed, split, "family", index // FAMILY_SIZE))
        scene = family
        draws = Draws(data_seed, split, "scene", index)
        for attempt in count():
            if index % FAMILY_SIZE or attempt:
                scene = similar_scene(family, draws) if attempt < _TRIES_IN_FAMILY else random_scene(draws)
            if scene not in taken:
                break
        taken.add(scene)
        scenes.append(scene)
    return tuple(scenes)
