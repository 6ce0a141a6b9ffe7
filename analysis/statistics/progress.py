"""How far a sweep that is still tuning has come, from the runs of its candidates."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.run_schema import STATUS_DONE

if TYPE_CHECKING:
    from analysis.tracking import SweepRuns

_OBJECTIVE = ("dataset", "framework", "backbone", "pair", "triplet")
_ENDED = (STATUS_DONE, "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The candidates of a sweep that have ended: all of their stages and seeds are done or failed."""

    ended: tuple[int, int]
    """The fewest and the most of an objective."""
    known: int
    """The most that tracking has of an objective, ended or not."""
    budget: int | None
    """Candidates per objective; None where the parent run does not state it."""
    objectives: int
    """Objectives with a candidate, counted once for each model."""

    @property
    def text(self) -> str:
        """For example ``12 of 16 candidates per objective``."""
        low, high = self.ended
        number = str(low) if low == high else f"{low} to {high}"
        if self.budget is not None:
            return f"{number} of {self.budget} candidates per objective"
        return f"{number} of the {self.known} candidates that were asked for so far, per objective"


def tuning_progress(sweep: SweepRuns) -> Progress | None:
    """How many candidates have ended; None if tracking has none."""
    if sweep.candidates.empty:
        return None
    ended: Counter[tuple[str, ...]] = Counter()
    known: Counter[tuple[str, ...]] = Counter()
    for key, runs in sweep.candidates.groupby([*_OBJECTIVE, "candidate"]):
        objective = tuple(map(str, key[:-1]))
        known[objective] += 1
        ended[objective] += int(runs["status"].isin(_ENDED).all())
    numbers = [ended[objective] for objective in known]
    return Progress(
        ended=(min(numbers), max(numbers)), known=max(known.values()), budget=sweep.budget, objectives=len(known)
    )
