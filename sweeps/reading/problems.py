"""Problems of a sweep file: where each one is, and the error that reports all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goal_core.errors import GoalError

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the sweep file down to a value."""


@dataclass(frozen=True, slots=True)
class Where:
    """The place a value was written at."""

    source: str
    """The file as shown to the user, or `--set key`."""
    line: int = 0
    """Line in the file, from 1; 0 where there is no line."""

    def __str__(self) -> str:
        """`file:line`, or the source alone."""
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, in one line."""

    where: Where
    path: str
    """Dotted key path, list items by name or index: `stages.frozen.lr`; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        """`file:line: key.path: message`."""
        parts = [str(self.where), self.path, self.message] if self.path else [str(self.where), self.message]
        return ": ".join(parts)


class SweepError(GoalError):
    """A sweep file (or a `--set`) is wrong; one line for each problem.

    Args:
        problems: at least one.
        sources: the files in the order in which to list their problems; others (`--set`) follow. In a file by line.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        super().__init__("\n".join(str(problem) for problem in self.problems))
