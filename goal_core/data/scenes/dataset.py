"""Synthetic pictures of coloured shapes, five captions each, generated from a seed.

Scenes come in families of four that differ in one respect each, so every image has near misses in its own split.
Captions are incomplete, so no model reaches a recall of 100. Pictures have noise, so that scenes of equal description
differ in their pixels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.data.dataset import COUNTED, SPLIT_NAMES, Dataset, Split, fingerprint_of
from goal_sweep.goal_core.data.scenes.scene import (
    GRID,
    Draws,
    Scene,
    SceneObject,
    random_scene,
    scene_captions,
    similar_scene,
)

GENERATOR_VERSION = 1
"""Raise it whenever the same parameters would give different pictures or captions."""
FAMILY_SIZE = 4
TRIES_IN_FAMILY = 50
"""Similar scenes to try before taking one of another family, when most descriptions are already taken."""
_RGB = {
    **{"red": (214, 40, 40), "orange": (244, 134, 30), "yellow": (243, 211, 40), "green": (40, 150, 70)},
    **{"blue": (40, 90, 205), "purple": (130, 55, 170), "pink": (238, 110, 170), "brown": (125, 78, 40)},
    **{"black": (28, 28, 32), "white": (244, 244, 244), "grey": (178, 178, 180), "beige": (222, 205, 170)},
    **{"pale blue": (176, 210, 236), "mint": (184, 228, 200), "lilac": (208, 192, 232)},
}
"""Of colours and tints."""
_RADIUS = {"small": 0.12, "large": 0.19}
"""Share of the image's side."""
_OVERSAMPLING = 4
_ROTATION = math.radians(14)
_JITTER = 0.03
"""Largest shift of an object off the centre of its cell, as a share of the image's side."""
_SCALE_NOISE = 0.1
_COLOUR_NOISE = 18
"""Largest change of each channel of an object's colour, out of 255."""
_TINT_NOISE = 8
_PIXEL_NOISE = 9
_PATTERN_DEPTH = 30
"""How much darker a pattern's marks are than the ground, out of 255."""


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
        corpus=[splits[name].captions for name in COUNTED],
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


def render_scene(scene: Scene, side: int, draws: Draws) -> NDArray[np.uint8]:
    """Render a scene.

    Positions, sizes, angles and colours vary a little, patterns have random pitch, phase and direction, and every
    pixel carries noise. Equal draws give equal pixels, up to the rounding of a platform's sine and of Pillow's polygon
    filling.

    Returns:
        (side, side, 3) uint8 RGB; the side is at least 8 pixels.
    """
    image = Image.fromarray(_background(scene, side, draws))
    for item in scene.objects:
        mask = _object_mask(item, side, draws)
        image.paste(_varied(_RGB[item.colour], _COLOUR_NOISE, draws), mask=mask)
    noisy = np.asarray(image).astype(np.float64) + _PIXEL_NOISE * draws.field(side, side, 3)
    return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)


def _varied(rgb: tuple[int, int, int], noise: int, draws: Draws) -> tuple[int, int, int]:
    """The colour, each channel shifted by at most ``noise``."""
    red, green, blue = (min(255, max(0, round(value + draws.between(-1, 1) * noise))) for value in rgb)
    return red, green, blue


def _background(scene: Scene, side: int, draws: Draws) -> NDArray[np.uint8]:
    """The tinted ground with its pattern, (side, side, 3)."""
    ground = np.array(_varied(_RGB[scene.tint], _TINT_NOISE, draws), dtype=np.int64)
    angle = draws.between(0, math.pi) if scene.pattern == "striped" else draws.between(-0.3, 0.3)
    # Pitch (marks per image side) and phase are drawn for plain grounds too, so that the objects' noise stays the same.
    pitch, phase = draws.between(6, 9), draws.between(0, 1)
    rows, columns = np.mgrid[:side, :side] / side
    across = pitch * (columns * math.cos(angle) + rows * math.sin(angle)) + phase
    along = pitch * (rows * math.cos(angle) - columns * math.sin(angle)) + phase
    match scene.pattern:
        case "striped":
            marks = across % 1 < 0.4
        case "dotted":
            marks = (across % 1 - 0.5) ** 2 + (along % 1 - 0.5) ** 2 < 0.08
        case "checked":
            marks = (np.floor(across) + np.floor(along)) % 2 == 0
        case _:
            marks = np.zeros((side, side), dtype=bool)
    pixels: NDArray[np.uint8] = np.clip(ground - _PATTERN_DEPTH * marks[:, :, None], 0, 255).astype(np.uint8)
    return pixels


def _object_mask(item: SceneObject, side: int, draws: Draws) -> Image.Image:
    """How far the object covers each pixel, mode L, (side, side)."""
    large = side * _OVERSAMPLING
    radius = _RADIUS[item.size] * (1 + draws.between(-1, 1) * _SCALE_NOISE)
    centre_x = (item.column + 0.5) / GRID + draws.between(-1, 1) * _JITTER
    centre_y = (item.row + 0.5) / GRID + draws.between(-1, 1) * _JITTER
    angle = draws.between(-1, 1) * _ROTATION
    mask = Image.new("L", (large, large), 0)
    pen = ImageDraw.Draw(mask)
    for points, fill in _OUTLINES[item.shape]:
        x, y = points[:, 0] * radius, points[:, 1] * radius
        turned_x = (centre_x + x * math.cos(angle) - y * math.sin(angle)) * large
        turned_y = (centre_y + x * math.sin(angle) + y * math.cos(angle)) * large
        # Rounding keeps a last digit that differs between platforms from moving an edge.
        corners = np.rint(np.stack([turned_x, turned_y], axis=1)).astype(int)
        pen.polygon([(int(x), int(y)) for x, y in corners], fill=fill)
    return mask.reduce(_OVERSAMPLING)


def _arc(start: float, stop: float, num_points: int = 60) -> NDArray[np.float64]:
    """Points on the unit circle from ``start`` up to ``stop`` degrees, exclusive, clockwise from the right, (N, 2)."""
    angles = np.radians(np.linspace(start, stop, num_points, endpoint=False))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


_CIRCLE = _arc(0, 360)
_STAR = _arc(-90, 270, 10) * np.where(np.arange(10) % 2 == 0, 1.1, 0.45)[:, None]
_ARM = 0.33
_HALF_CROSS = [(_ARM, _ARM), (1.0, _ARM), (1.0, -_ARM), (_ARM, -_ARM), (_ARM, -1.0), (-_ARM, -1.0)]
_T = np.linspace(0, 2 * math.pi, 60, endpoint=False)
_HEART_Y = 13 * np.cos(_T) - 5 * np.cos(2 * _T) - 2 * np.cos(3 * _T) - np.cos(4 * _T)
_OUTLINES = {
    "circle": [(_CIRCLE, 255)],
    "ring": [(_CIRCLE, 255), (0.55 * _CIRCLE, 0)],
    "square": [(1.2 * _arc(45, 405, 4) * math.sqrt(0.5) * 1.1, 255)],
    "diamond": [(_arc(0, 360, 4) * np.array([0.75, 1.1]), 255)],
    "triangle": [(1.1 * _arc(-90, 270, 3) + np.array([0.0, 0.15]), 255)],
    "star": [(_STAR, 255)],
    "cross": [(np.array([*_HALF_CROSS, *((-x, -y) for x, y in _HALF_CROSS)]), 255)],
    "heart": [(np.stack([16 * np.sin(_T) ** 3, -_HEART_Y], axis=1) / 16, 255)],
    "crescent": [(_CIRCLE, 255), (0.85 * _CIRCLE + np.array([0.5, 0.0]), 0)],
}
"""Of each shape the polygons (N, 2) around the origin, about radius 1, y downwards; 255 is solid, 0 a hole."""
