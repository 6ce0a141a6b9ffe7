"""The problems of a sweep file: where each one is, and the error that reports them together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goal_core.errors import GoalError

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
        """`file:line: key.path: message`."""
        parts = [str(self.where), self.path, self.message] if self.path else [str(self.where), self.message]
        return ": ".join(parts)


class SweepError(GoalError):
    """A sweep file or a `--set` is wrong. The message has one line for each problem.

    Args:
        problems: at least one.
        sources: the files, in the order in which to list their problems; other sources (`--set`) follow. The problems
            of one source are listed by line.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        super().__init__("\n".join(str(problem) for problem in self.problems))
