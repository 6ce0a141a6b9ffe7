"""Synthetic scenes: their content, random ones, and captions with synonyms, varied order and only part of each."""

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
_SYNONYMS = {
    **{"circle": ("disc", "round shape"), "square": ("box",), "cross": ("plus sign",), "ring": ("hoop",)},
    **{"diamond": ("rhombus",), "crescent": ("moon",)},
    **{"red": ("crimson",), "yellow": ("golden",), "green": ("emerald",), "blue": ("azure",), "purple": ("violet",)},
    **{"pink": ("rose",), "black": ("dark",)},
    **{"small": ("little", "tiny"), "large": ("big", "huge")},
}
"""Further words for shapes, colours and sizes, which also go by their own names."""
_PATTERN_WORDS = {"striped": "stripes", "dotted": "dots", "checked": "checks"}
_ROW_WORDS = (("top", "upper"), ("", ""), ("bottom", "lower"))
_COLUMN_WORDS = ("left", "", "right")
_RELATIONS = {
    "left": ("to the left of", "left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right side of"),
    "above": ("above", "over", "higher than"),
    "below": ("below", "under", "beneath"),
}
_OPENERS = ("a picture of", "an image of", "a drawing with", "there is", "we see", "")
_SIZE_MENTIONED = 0.6
_BACKGROUND_MENTIONED = 0.5


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


def scene_captions(scene: Scene, draws: Draws) -> list[str]:
    """Write five captions, each of a different form. All are true; none is complete.

    Args:
        scene: what to describe.
        draws: the choice of words and of what to mention.

    Returns:
        Five lower-case sentences without a full stop. They may also fit other, similar scenes.
    """
    forms = (_relation, _listing, _two_positions, _background_first, _one_object)
    return [form(scene, draws) for form in draws.shuffled(forms)]


def words_for(name: str) -> tuple[str, ...]:
    """All words for a shape, a colour or a size."""
    return name, *_SYNONYMS.get(name, ())


def _relation(scene: Scene, draws: Draws) -> str:
    """Two objects and where one is as seen from the other."""
    first, second = draws.shuffled(scene.objects, 2)
    return _related(first, second, draws, draws.one_of((" is", " sits", ""))) + _maybe_on(scene, draws)


def _listing(scene: Scene, draws: Draws) -> str:
    """All objects, without their positions."""
    *names, last = [_object(item, draws) for item in draws.shuffled(scene.objects)]
    return f"{draws.one_of(_OPENERS)} {', '.join(names)} and {last}".strip() + _maybe_on(scene, draws)


def _two_positions(scene: Scene, draws: Draws) -> str:
    """Two objects, each with its position."""
    first, second = draws.shuffled(scene.objects, 2)
    if draws.chance(0.5):
        return f"{_placed(first, draws)} and {_placed(second, draws)}"
    return f"{_position(first, draws)} {_object(first, draws)}, {_position(second, draws)} {_object(second, draws)}"


def _background_first(scene: Scene, draws: Draws) -> str:
    """The background, then two objects."""
    first, second = draws.shuffled(scene.objects, 2)
    relation = _related(first, second, draws)
    return f"{_on(scene, draws)}, {relation}"


def _one_object(scene: Scene, draws: Draws) -> str:
    """One object with its position; the others are named by their shape alone, or counted."""
    first, *others = draws.shuffled(scene.objects)
    number = ("two", "three")[len(scene.objects) - 2]
    start = draws.one_of((f"{number} shapes, one of them", f"among {number} shapes there is"))
    if draws.chance(0.5):
        return f"{start} {_placed(first, draws)}" + _maybe_on(scene, draws)
    rest = " and ".join(_with_article(draws.one_of(words_for(item.shape))) for item in others)
    return f"{_placed(first, draws)} with {rest}" + _maybe_on(scene, draws)


def _object(item: SceneObject, draws: Draws) -> str:
    words = [draws.one_of(words_for(name)) for name in (item.colour, item.shape)]
    if draws.chance(_SIZE_MENTIONED):
        words.insert(0, draws.one_of(words_for(item.size)))
    return _with_article(" ".join(words))


def _placed(item: SceneObject, draws: Draws) -> str:
    return f"{_object(item, draws)} {_position(item, draws)}"


def _related(first: SceneObject, second: SceneObject, draws: Draws, verb: str = "") -> str:
    return f"{_object(first, draws)}{verb} {_seen_from(first, second, draws)} {_object(second, draws)}"


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _seen_from(item: SceneObject, other: SceneObject, draws: Draws) -> str:
    """Where ``item`` is as seen from ``other``; a diagonal is described by one direction or both."""
    vertical = "above" if item.row < other.row else "below" if item.row > other.row else ""
    horizontal = "left" if item.column < other.column else "right" if item.column > other.column else ""
    both = vertical and horizontal
    said = draws.one_of(("both", vertical, horizontal)) if both else vertical or horizontal
    return f"{vertical} and to the {horizontal} of" if said == "both" else draws.one_of(_RELATIONS[said])


def _position(item: SceneObject, draws: Draws) -> str:
    """Where ``item`` is in the image."""
    middle = GRID // 2
    column = _COLUMN_WORDS[item.column]
    if item.cell == (middle, middle):
        return draws.one_of(("in the middle", "in the centre", "at the centre"))
    if item.row == middle:
        return draws.one_of((f"on the {column}", f"at the {column} edge", f"on the {column} side"))
    plain, formal = _ROW_WORDS[item.row]
    if item.column == middle:
        return draws.one_of((f"at the {plain}", f"in the {plain} middle", f"at the {plain} edge"))
    return draws.one_of((f"in the {plain} {column} corner", f"in the {formal} {column}", f"at the {plain} {column}"))


def _on(scene: Scene, draws: Draws) -> str:
    """The background, such as ``on a striped grey background``."""
    ground = draws.one_of(("background", "backdrop"))
    of_tint = f"{scene.tint} {ground}"
    if scene.pattern == "plain":
        return draws.one_of((f"on a {of_tint}", f"on a plain {of_tint}"))
    marks = _PATTERN_WORDS[scene.pattern]
    return draws.one_of((f"on a {scene.pattern} {of_tint}", f"on a {of_tint} with {marks}", f"in front of {marks}"))


def _maybe_on(scene: Scene, draws: Draws) -> str:
    return f" {_on(scene, draws)}" if draws.chance(_BACKGROUND_MENTIONED) else ""
