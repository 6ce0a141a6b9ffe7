"""Drawn scenes for tests and `+smoke`: two coloured shapes on a coloured ground, with five captions each."""

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.data.dataset import COUNTED, SPLIT_NAMES, Dataset, Split, fingerprint_of

GENERATOR_VERSION = 2
"""Raise it whenever the same settings would give other pictures or captions."""
_COLOURS = {
    **{"red": (214, 40, 40), "yellow": (243, 211, 40), "green": (40, 150, 70), "blue": (40, 90, 205)},
    **{"purple": (130, 55, 170), "pink": (238, 110, 170), "brown": (125, 78, 40), "black": (28, 28, 32)},
}
_GROUNDS = {"white": (244, 244, 244), "grey": (178, 178, 180), "beige": (222, 205, 170), "mint": (184, 228, 200)}
_SHAPES = {
    "circle": lambda x, y: x**2 + y**2 < 1,
    "ring": lambda x, y: (x**2 + y**2 < 1) & (x**2 + y**2 > 0.3),
    "square": lambda x, y: np.maximum(abs(x), abs(y)) < 0.85,
    "diamond": lambda x, y: abs(x) + abs(y) < 1.1,
    "cross": lambda x, y: (np.minimum(abs(x), abs(y)) < 0.3) & (np.maximum(abs(x), abs(y)) < 1),
    "triangle": lambda x, y: (2 * abs(x) < y + 1) & (y < 0.8),
}
"""Which points belong to a shape of radius 1 at the origin, y downwards."""
_PLACES = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
"""Where the first shape is as seen from the second, and the second from the first."""
_CENTRES = {"left of": (0.28, 0.5), "right of": (0.72, 0.5), "above": (0.5, 0.28), "below": (0.5, 0.72)}


def _draws(split: str, index: int, purpose: str) -> np.random.Generator:
    """Random numbers of one scene. Uniform doubles are the same in every version of numpy."""
    return np.random.Generator(np.random.PCG64(derive_seed(0, "scenes", split, purpose, index)))


def _scene(split: str, index: int) -> tuple[str, ...]:
    """Colour and shape of the first thing, colour and shape of the second, ground, and place of the first."""
    kinds = [list(kind) for kind in (_COLOURS, _SHAPES, _COLOURS, _SHAPES, _GROUNDS, _PLACES)]
    draws = _draws(split, index, "scene").random(len(kinds))
    return tuple(kind[int(draw * len(kind))] for kind, draw in zip(kinds, draws, strict=True))


def _captions(scene: tuple[str, ...]) -> tuple[str, ...]:
    colour, shape, colour_2, shape_2, ground, place = scene
    return (
        f"a {colour} {shape} {place} a {colour_2} {shape_2}",
        f"a {colour_2} {shape_2} {_PLACES[place]} a {colour} {shape}",
        f"a {colour} {shape} and a {colour_2} {shape_2} on a {ground} ground",
        f"the {shape} is {colour} and the {shape_2} is {colour_2}",
        f"a {ground} picture of a {shape} {place} a {colour_2} {shape_2}",
    )


@dataclass(frozen=True, slots=True)
class SceneReader:
    """Draws a split's images when they are needed; an :class:`~goal_core.data.dataset.ImageReader`."""

    split: str
    side: int

    def read(self, index: int) -> NDArray[np.uint8]:
        """One scene, (side, side, 3) uint8 RGB, with noise; the same in every process."""
        colour, shape, colour_2, shape_2, ground, place = _scene(self.split, index)
        draws = _draws(self.split, index, "drawing")
        pixels = np.full((self.side, self.side, 3), _GROUNDS[ground], np.float64)
        y, x = (np.mgrid[: self.side, : self.side] + 0.5) / self.side
        for name, kind, where in ((colour, shape, place), (colour_2, shape_2, _PLACES[place])):
            (centre_x, centre_y), (shift_x, shift_y, size) = _CENTRES[where], draws.random(3) - 0.5
            radius = 0.19 + 0.04 * size
            inside = _SHAPES[kind]((x - centre_x - 0.1 * shift_x) / radius, (y - centre_y - 0.1 * shift_y) / radius)
            pixels[inside] = _COLOURS[name]
        return np.clip(pixels + 20 * draws.random(pixels.shape) - 10, 0, 255).astype(np.uint8)

    def label(self, index: int) -> str:
        """Split and number."""
        return f"{self.split} scene {index}"


def open_scenes(config: ScenesConfig) -> Dataset:
    """Describe all scenes; nothing is drawn yet. The first scenes of a split do not depend on its size."""
    counts, splits = (config.num_train, config.num_val, config.num_test), dict[str, Split]()
    for name, count in zip(SPLIT_NAMES, counts, strict=True):
        captions = list(chain.from_iterable(_captions(_scene(name, index)) for index in range(count)))
        owners, reader = np.repeat(np.arange(count), 5), SceneReader(name, config.image.resize)
        splits[name] = Split(name=name, captions=captions, caption_image=owners, reader=reader)
    return Dataset(
        name=config.name,
        splits=splits,
        fingerprint=fingerprint_of(config.image, config.min_word_count, ["scenes", GENERATOR_VERSION, *counts]),
        corpus=[splits[name].captions for name in COUNTED],
    )
