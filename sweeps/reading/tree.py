"""The values of a sweep file as a tree that knows where each was written, and the problems found in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from goal_sweep.goal_core.basics.errors import GoalError

MAX_PROBLEMS = 100
"""Problems that one message lists."""

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the sweep file down to a value."""
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value was written."""

    source: str
    """The file as shown to the user, or `--set key`."""
    line: int = 0
    """Line in the file, counted from 1; 0 where there is none."""

    def __str__(self) -> str:
        """`file:line`, or the source alone."""
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, described in one line."""

    where: Where
    path: str
    """Dotted key path with list items by name or index, such as `stages.frozen.lr`; empty for the whole file."""
    message: str

    def __str__(self) -> str:
        """`file:line: key.path: message`, or `--set key.path: message`."""
        path = "" if str(self.where) == f"--set {self.path}" else self.path
        return ": ".join(part for part in (str(self.where), path, self.message) if part)


class SweepError(GoalError):
    """A sweep file or a `--set` is wrong. The message has one line for each of the first `MAX_PROBLEMS` problems.

    Args:
        problems: at least one.
        sources: the files, in the order in which to list their problems; other sources (`--set`) follow. The problems
            of one source are listed by line.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        lines = [str(problem) for problem in self.problems[:MAX_PROBLEMS]]
        rest = ["and further problems"] if len(self.problems) > MAX_PROBLEMS else []
        super().__init__("\n".join([*lines, *rest]))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a sweep file, with the line of its key (in a list, of the item itself). Never changed in place."""

    value: Scalar | dict[str, Node] | list[Node]
    where: Where

    def plain(self) -> Any:
        """The value as ordinary dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def made(self, plain: Any) -> Node:
        """A tree of ordinary dicts, lists and scalars, as if it were written where this value is."""
        if isinstance(plain, dict):
            return Node({key: self.made(child) for key, child in plain.items()}, self.where)
        return Node([self.made(child) for child in plain] if isinstance(plain, list) else plain, self.where)

    @property
    def item_name(self) -> str | None:
        """The text under `name` if this is a mapping that has it, else None."""
        name = self.child("name")
        return name.value if name is not None and isinstance(name.value, str) else None

    def child(self, part: str | int) -> Node | None:
        """The value under a key, or the item at an index; None where there is none."""
        if isinstance(self.value, dict) and isinstance(part, str):
            return self.value.get(part)
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            return self.value[part]
        return None

    def at(self, path: Sequence[str | int]) -> Node | None:
        """The value at a path; None where there is none."""
        node: Node | None = self
        for part in path:
            node = node.child(part) if node is not None else None
        return node

    def put(self, path: Sequence[str | int], new: Node | None) -> Node:
        """Copy the tree with another value at a path.

        Args:
            path: keys and indices. A mapping that is missing on the way is made; an index exists.
            new: the value; None removes the key.
        """
        if not path:
            return cast(Node, new)
        part, below = path[0], self.child(path[0]) or Node(None, (new or self).where)
        changed = None if len(path) == 1 and new is None else below.put(path[1:], new)
        if isinstance(self.value, list):
            items = [changed if index == part else item for index, item in enumerate(self.value)]
            return Node([item for item in items if item is not None], self.where)
        assert self.value is None or isinstance(self.value, dict), f"nothing can lie below {self.value!r}"
        children: dict[str, Node | None] = {**(self.value or {}), str(part): changed}
        return Node({key: child for key, child in children.items() if child is not None}, self.where)

    def leaves(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Node]]:
        """Every single value from here down, with its path."""
        if not isinstance(self.value, (dict, list)):
            yield path, self
            return
        for part, child in self.value.items() if isinstance(self.value, dict) else enumerate(self.value):
            yield from child.leaves((*path, part))

    def shown(self, path: Sequence[str | int]) -> str:
        """A path in the form that `--set` takes: dotted, with the items of a list by name where they have one."""
        words = []
        for number, part in enumerate(path, start=1):
            node = self.at(path[:number]) if isinstance(part, int) else None
            words.append((node.item_name if node is not None else None) or str(part))
        return ".".join(words)
