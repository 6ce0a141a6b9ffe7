"""The record of a search: what is tried for each objective, how it ended, and what was chosen; scores are of val."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AllowInfNan

from goal_sweep.sweeps.axes import AxisValue

Values = Mapping[str, AxisValue]
"""A value for every searched setting that an objective has, by the setting's name in labels, such as `tau`."""
_Score = Annotated[float, AllowInfNan(False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One setting of an objective's constants, which all seeds of the search train."""

    number: int
    """In the order in which the search proposed them, from 0."""
    values: Values
    default: bool = False
    """Whether these are the sweep's own settings."""
    score: _Score | None = None
    """The mean over the search's seeds of its metric at the selected epoch."""
    scores: Mapping[str, _Score] = field(default_factory=dict)
    failed: str = ""
    """Why it has no score; empty if it has one, or has not ended."""

    @property
    def ended(self) -> bool:
        """Whether it has a score, or failed."""
        return self.score is not None or self.failed != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The search of one objective on one backbone."""

    backbone: str
    pair: str
    triplet: str
    names: tuple[str, ...]
    """The searched settings that the objective has, as labels have them."""
    candidates: tuple[Candidate, ...]
    is_over: bool = False
    """Whether all candidates have ended and no more will come."""
    chosen: int | None = None
    """The number of the chosen candidate; None until all studies of the sweep are over, and where none has a score."""

    @property
    def objective(self) -> tuple[str, str]:
        """``(pair, triplet)``."""
        return self.pair, self.triplet

    @property
    def choice(self) -> Candidate | None:
        """The chosen candidate."""
        return None if self.chosen is None else self.candidates[self.chosen]

    @property
    def default(self) -> Candidate | None:
        """The candidate with the sweep's own settings; None where it is not among them."""
        return next((candidate for candidate in self.candidates if candidate.default), None)
