"""A sweep file as mappings and lists that know where each value was written, and the mistakes found in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goal_sweep.goal_core.basics.errors import GoalError

MAX_PROBLEMS = 100
"""Problems that one message lists."""
KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the sweep file down to a value."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value was written."""

    source: str
    """The file as shown to the user, or `--set key`."""
    line: int = 0
    """Line in the file, counted from 1; 0 where there is none."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, described in one line."""

    where: Where
    path: str
    """Dotted key path with list items by name or index, such as `stages.frozen.lr`; empty for the whole file."""
    message: str

    def __str__(self) -> str:
        path = "" if str(self.where) == f"--set {self.path}" else self.path
        return ": ".join(part for part in (str(self.where), path, self.message) if part)


class SweepError(GoalError):
    """A sweep file or a `--set` is wrong. The message has one line for each of the first `MAX_PROBLEMS` problems.

    Args:
        problems: at least one.
        sources: the files, in the order in which to list their problems; other sources (`--set`) follow.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        lines = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        rest = ["and further problems"] if len(self.problems) > MAX_PROBLEMS else []
        super().__init__("\n".join([*lines, *rest]))


class Section(dict[str, Any]):
    """A mapping that knows where each key was written, and under the key `""`, if it is a whole file, where itself."""

    def __init__(self, content: Mapping[str, Any], places: Mapping[Any, Where]) -> None:
        super().__init__(content)
        self.places: dict[Any, Where] = dict(places)


class Items(list[Any]):
    """A list that knows where each item was written, by index."""

    def __init__(self, content: Iterable[Any], places: Mapping[Any, Where]) -> None:
        super().__init__(content)
        self.places: dict[Any, Where] = dict(places)


def located(plain: Any, where: Where) -> Any:
    """Ordinary mappings, lists and scalars as if they were written at one place."""
    if isinstance(plain, dict):
        return Section({key: located(value, where) for key, value in plain.items()}, dict.fromkeys(plain, where))
    if isinstance(plain, list):
        return Items([located(value, where) for value in plain], dict.fromkeys(range(len(plain)), where))
    return plain


def has(value: Any, part: str | int) -> bool:
    """Whether a value has something under a key or at an index."""
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def value_at(root: Any, path: KeyPath) -> Any:
    """The value at a path; None where there is none."""
    for part in path:
        root = root[part] if has(root, part) else None
    return root


def place_of(root: Section, path: KeyPath) -> Where:
    """Where a value was written, or else the nearest one above it."""
    value: Any = root
    place = root.places[""]
    for part in path:
        if not has(value, part):
            break
        value, place = value[part], value.places.get(part, place)
    return place


def put(root: Any, path: KeyPath, value: Any, where: Where | None = None) -> None:
    """Set the value at a path, and its place if one is given. A mapping that is missing on the way is made."""
    *above, last = path
    for part in above:
        if not isinstance(value_at(root, (part,)), dict | list):
            put(root, (part,), Section({}, {}), where)
        root = root[part]
    root[last] = value
    if where is not None:
        root.places[last] = where


def leaves(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Every single value from here down, with its path."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for part, child in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(child, (*path, part))


def name_of(item: Any) -> str | None:
    """The text under `name` of a mapping that has it."""
    name = value_at(item, ("name",))
    return name if isinstance(name, str) else None


def shown(root: Any, path: KeyPath) -> str:
    """A path in the form that `--set` takes: dotted, with the items of a list by name where they have one."""
    words = []
    for number, part in enumerate(path, start=1):
        named = name_of(value_at(root, path[:number])) if isinstance(part, int) else None
        words.append(named or str(part))
    return ".".join(words)


def resolve(root: Any, words: Sequence[str]) -> tuple[KeyPath, list[str]]:
    """Follow a dotted key as far as it leads; items of a list are named by name or index.

    Returns:
        The path, and the words that lead nowhere.
    """
    path: KeyPath = ()
    while words:
        for used in range(len(words), 0, -1):  # a key or a name may have dots, such as `resnet50.a1_in1k`
            word = ".".join(words[:used])
            parts = [index for index, item in enumerate(root) if name_of(item) == word] if type(root) is Items else []
            parts += [int(word)] if isinstance(root, list) and word.isdecimal() else [word]
            if has(root, parts[0]):
                break
        else:
            break
        path, root, words = (*path, parts[0]), root[parts[0]], words[used:]
    return path, list(words)
