"""English captions of synthetic scenes: synonyms, varied word order, and only part of each scene."""

from __future__ import annotations

from goal_sweep.goal_core.data.scenes.scene import GRID, Draws, Scene, SceneObject

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
