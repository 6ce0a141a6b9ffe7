"""The content of a synthetic scene, and random scenes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from goal_sweep.goal_core.basics.seeding import derive_seed

T = TypeVar("T")

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart", "crescent")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black")
SIZES = ("small", "large")
TINTS = ("white", "grey", "beige", "pale blue", "mint", "lilac")
PATTERNS = ("plain", "striped", "dotted", "checked")
_OF_AN_OBJECT = {"colour": COLOURS, "shape": SHAPES, "size": SIZES}
GRID = 3
"""Rows and columns of the grid in whose cells the objects stand."""


class Draws:
    """A stream of random choices. All come from uniform doubles, which numpy keeps the same from version to version.

    Args:
        seed: the data's seed.
        purpose: words that name the stream.
    """

    def __init__(self, seed: int, *purpose: object) -> None:
        self._generator = np.random.Generator(np.random.PCG64(derive_seed(seed, "scenes", *purpose)))

    def below(self, limit: int) -> int:
        """An integer in [0, limit)."""
        return int(self._generator.random() * limit)

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * float(self._generator.random())

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return bool(self._generator.random() < probability)

    def one_of(self, options: Sequence[T]) -> T:
        """One of the options, each equally likely."""
        return options[self.below(len(options))]

    def shuffled(self, options: Sequence[T], count: int = 0) -> list[T]:
        """``count`` different options in random order; 0 gives all of them."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(count or len(rest))]

    def field(self, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """An array of independent numbers in [-1, 1)."""
        return 2.0 * self._generator.random(shape) - 1.0


@dataclass(frozen=True, slots=True, order=True)
class SceneObject:
    """One thing in a scene."""

    row: int
    """0 (top) to GRID - 1."""
    column: int
    """0 (left) to GRID - 1."""
    shape: str
    colour: str
    size: str

    @property
    def cell(self) -> tuple[int, int]:
        """Row and column."""
        return self.row, self.column


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The full description of an image. Two scenes are equal when no caption could tell them apart."""

    objects: tuple[SceneObject, ...]
    """Two or three, in reading order, in different cells, no two alike in both shape and colour."""
    tint: str
    pattern: str

    @property
    def is_valid(self) -> bool:
        """Whether no two objects share a cell or both shape and colour."""
        cells = {item.cell for item in self.objects}
        looks = {(item.shape, item.colour) for item in self.objects}
        return len(cells) == len(looks) == len(self.objects)


def random_scene(draws: Draws) -> Scene:
    """Choose a scene; all attributes are independent and equally likely."""
    cells = draws.shuffled(range(GRID * GRID), 2 + draws.below(2))
    while True:
        objects = [
            SceneObject(cell // GRID, cell % GRID, draws.one_of(SHAPES), draws.one_of(COLOURS), draws.one_of(SIZES))
            for cell in cells
        ]
        scene = _scene(objects, draws.one_of(TINTS), draws.one_of(PATTERNS))
        if scene.is_valid:
            return scene


def similar_scene(scene: Scene, draws: Draws) -> Scene:
    """Change a scene in one respect.

    It changes an object's colour, shape, size or position, changes the background, or exchanges the positions or
    colours of two objects.
    """
    while True:
        first, second, *rest = draws.shuffled(scene.objects)
        tint, pattern = scene.tint, scene.pattern
        match draws.one_of((*_OF_AN_OBJECT, "position", "exchange positions", "exchange colours", "background")):
            case "position":
                first = replace(first, row=draws.below(GRID), column=draws.below(GRID))
            case "exchange positions":
                both = ((first, second), (second, first))
                first, second = (replace(one, row=other.row, column=other.column) for one, other in both)
            case "exchange colours":
                first, second = replace(first, colour=second.colour), replace(second, colour=first.colour)
            case "background":
                tint, pattern = draws.one_of(TINTS), draws.one_of(PATTERNS)
            case attribute:
                changes: dict[str, Any] = {attribute: draws.one_of(_OF_AN_OBJECT[attribute])}
                first = replace(first, **changes)
        changed = _scene([first, second, *rest], tint, pattern)
        if changed != scene and changed.is_valid:
            return changed


def _scene(objects: list[SceneObject], tint: str, pattern: str) -> Scene:
    return Scene(objects=tuple(sorted(objects)), tint=tint, pattern=pattern)
