"""The search of one objective on one backbone: which candidates it has, how far each is trained, which one is best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from runners.launch.tuning.tpe import propose
from sweeps import Candidate, Space, TuneConfig
from sweeps.tuning.space import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a candidate ended, at the epoch to which it was asked to train."""

    score: float | None
    """Mean over the seeds of the search; None if it failed."""
    scores: dict[int, float] = field(default_factory=dict)
    """By seed."""
    epochs: int = 0
    """Epochs of the last stage that were trained."""
    failed: str = ""
    """Why it has no score; empty if it has one."""


class Study:
    """The search of one objective.

    Args:
        tune: the sweep's `tune` block.
        space: what is searched.
        backbone: the backbone's name.
        epochs: epochs of the last stage.
    """

    def __init__(self, tune: TuneConfig, space: Space, backbone: str, epochs: int) -> None:
        self._tune, self._space, self._backbone = tune, space, backbone
        self._rungs = tune.stop_early.rungs(epochs) if tune.stop_early else ()
        self._ends = (*self._rungs, 0)
        """The epochs to which a candidate is trained, one after the other; 0 is the last."""
        self._values: list[Values] = []
        self._levels: list[int] = []
        """Of each candidate, the place in `_ends` that it has been asked for."""
        self._used_up = False
        if tune.search == "tpe":
            self._propose([])
        else:
            self._add(space.without_scores(tune.budget))
            self._used_up = True

    @property
    def candidates(self) -> list[Candidate]:
        """The candidates by now, in order."""
        pair, triplet = self._space.name
        return [
            Candidate(
                backbone=self._backbone,
                pair=pair,
                triplet=triplet,
                number=number,
                values=values,
                until=self._ends[level],
            )
            for number, (values, level) in enumerate(zip(self._values, self._levels, strict=True))
        ]

    @property
    def proposes(self) -> bool:
        """Whether more candidates will come."""
        return not self._used_up and len(self._values) < self._tune.budget

    def advance(self, outcomes: Sequence[Outcome | None]) -> bool:
        """Ask for what follows from the scores: further epochs of the better candidates, or more candidates.

        Args:
            outcomes: of `candidates`, in their order; None for one that has not ended.

        Returns:
            Whether there is anything new to train.
        """
        count, batch = len(self._values), self._tune.batch
        raised = [self._raise(range(start, min(start + batch, count)), outcomes) for start in range(0, count, batch)]
        if any(raised) or None in outcomes or not self.proposes:
            return any(raised)
        return self._propose([None if one is None else one.score for one in outcomes])

    def _raise(self, cohort: Sequence[int], outcomes: Sequence[Outcome | None]) -> bool:
        """Let one of so many of a cohort's candidates go on, once all that are still in it have ended."""
        level = max(self._levels[number] for number in cohort)
        members = [number for number in cohort if self._levels[number] == level]
        if level == len(self._rungs) or self._tune.stop_early is None or any(outcomes[one] is None for one in members):
            return False
        scores = {number: one.score for number in members if (one := outcomes[number]) and one.score is not None}
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        best = ranked[: math.ceil(len(cohort) / self._tune.stop_early.factor ** (level + 1))]
        # The sweep's own settings go on, so that what is chosen is at least as good on val.
        for number in {*best, *(one for one in ranked if not self._values[one])}:
            self._levels[number] += 1
        return bool(ranked)

    def _propose(self, scores: Sequence[float | None]) -> bool:
        """Ask for the next batch."""
        if not self._values:
            self._add(self._space.first())
            scores = [None] * len(self._values)
        number = len(self._values)
        end = min(self._tune.budget, (number // self._tune.batch + 1) * self._tune.batch)
        before = list(zip(self._values, scores, strict=True))
        new = propose(self._space, self._tune.search_seed, before, end - number)
        self._used_up = len(new) < end - number
        self._add(new)
        return bool(new)

    def _add(self, values: Sequence[Values]) -> None:
        self._values += values
        self._levels += [0] * len(values)

    def best(self, outcomes: Sequence[Outcome | None]) -> Candidate | None:
        """The candidate with the highest score, of equal ones the first; one that was stopped only if no other is left.

        Args:
            outcomes: of `candidates`, in their order.
        """
        scored = [
            (one, outcome.score)
            for one, outcome in zip(self.candidates, outcomes, strict=True)
            if outcome is not None and outcome.score is not None
        ]
        whole = [one for one in scored if not one[0].until]
        longest = max((one.until for one, _ in scored), default=0)
        left = whole or [one for one in scored if one[0].until == longest]
        return max(left, key=lambda one: (one[1], -one[0].number))[0] if left else None
