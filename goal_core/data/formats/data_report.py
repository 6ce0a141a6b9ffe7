"""What was found of a dataset, thing by thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from goal_core.data.formats.published import SplitCounts
from goal_core.errors import DataError

State = Literal["ok", "missing", "wrong"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    item: str
    """What: a file or folder (by its name), a split, or the images' content."""
    state: State
    found: str
    """What is there, or what is the matter."""
    published: str = ""
    """What the published dataset has there; empty where nothing is published."""


@dataclass(slots=True, kw_only=True)
class DataReport:
    """All findings about a dataset."""

    name: str
    findings: list[Finding] = field(default_factory=list)
    obtain: tuple[str, ...] = ()
    """Where the files come from, a line each; given when something is missing or wrong."""

    @property
    def complete(self) -> bool:
        """Whether everything is present and of the right shape."""
        return all(finding.state == "ok" for finding in self.findings)

    def note(self, item: str, state: State, found: str, published: str = "") -> None:
        """Add a finding."""
        self.findings.append(Finding(item=item, state=state, found=found, published=published))

    def attempt(self, item: str, act: Callable[[], T]) -> T | None:
        """Do something, and note it when the data does not allow it."""
        try:
            return act()
        except DataError as error:
            gone = any(words in str(error) for words in ("missing", "not found", "no annotation file"))
            self.note(item, "missing" if gone else "wrong", str(error))
            return None

    def counts(self, split: str, found: SplitCounts, published: SplitCounts | None) -> None:
        """Note a split's size beside the published one."""
        shown = "" if published is None else str(published)
        self.note(split, "ok" if published in (None, found) else "wrong", str(found), shown)
