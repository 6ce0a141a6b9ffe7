"""Find out from the results so far what a sweep's search has proposed, and what it chose."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from runners.launch.tuning.study import Outcome, Study
from sweeps import Candidate, ResolvedSweep, Training

Ended = Mapping[str, Any] | str
"""How a training ended: its result, or why it failed."""
Read = Callable[[Sequence[Training]], Mapping[Training, Ended | None]]
"""Reads how trainings ended; None for one that has not."""
_Sweep = TypeVar("_Sweep", bound=ResolvedSweep)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The state of a sweep's search."""

    candidates: tuple[Candidate, ...]
    """What was proposed by now: by backbone, then by objective, in the order of their numbers."""
    outcomes: Mapping[tuple[str, str, str, int], Outcome]
    """How candidates ended, by backbone, pair, triplet and number; those that train are not there."""
    chosen: tuple[Candidate, ...]
    """The choice of each backbone and objective that has one; empty until the search is over."""
    is_over: bool
    """Whether all candidates have ended and no more will come."""

    def of(self, candidate: Candidate) -> Outcome | None:
        """How a candidate ended; None while it has not."""
        return self.outcomes.get(_name(candidate))


def with_search(sweep: _Sweep, read: Read) -> tuple[_Sweep, Search]:
    """A sweep with the candidates, and with the choice, that follow from the results so far.

    Args:
        sweep: the sweep, which has a `tune` block.
        read: reads how trainings ended.
    """
    search = replay(sweep, read)
    return replace(sweep, candidates=search.candidates, chosen=search.chosen), search


def replay(sweep: ResolvedSweep, read: Read) -> Search:
    """The state of a sweep's search.

    Args:
        sweep: the sweep, which has a `tune` block.
        read: reads how trainings ended.
    """
    config = sweep.config
    assert config.tune is not None
    epochs = config.stages[-1].epochs
    studies = [
        Study(config.tune, space, model.backbone.name, epochs)
        for model in config.model.models
        for space in sweep.spaces.values()
    ]
    ended: dict[Training, Ended | None] = {}
    while True:
        candidates = tuple(one for study in studies for one in study.candidates)
        outcomes = _outcomes(replace(sweep, candidates=candidates, chosen=()), read, ended)
        ends = [[outcomes.get(_name(one)) for one in study.candidates] for study in studies]
        advanced = [study.advance(of_study) for study, of_study in zip(studies, ends, strict=True)]
        if not any(advanced):
            break
    over = len(outcomes) == len(candidates) and not any(study.proposes for study in studies)
    best = [study.best(of_study) for study, of_study in zip(studies, ends, strict=True)] if over else []
    return Search(
        candidates=candidates,
        outcomes=outcomes,
        chosen=tuple(replace(one, until=0) for one in best if one is not None),
        is_over=over,
    )


def _outcomes(
    sweep: ResolvedSweep, read: Read, ended: dict[Training, Ended | None]
) -> dict[tuple[str, str, str, int], Outcome]:
    """How the candidates ended, at the epochs to which they train by now.

    Args:
        sweep: the sweep with its candidates.
        read: reads how trainings ended.
        ended: what was read already; receives the rest.
    """
    tune = sweep.config.tune
    assert tune is not None
    trainings = [one for one in sweep.trainings if one.number is not None]
    ended.update(read([one for one in trainings if one not in ended]))
    last: dict[tuple[str, str, str, int], dict[int, Training]] = {}
    until = {_name(one): one.until for one in sweep.candidates}
    for training in sweep.by_stage[-1]:
        if training.number is not None:
            cell = training.cell
            name = (cell.model.backbone.name, cell.objective.pair, cell.objective.triplet, training.number)
            if training.until == until[name]:
                last.setdefault(name, {})[cell.seed] = training
    found = {}
    for name, of_seed in last.items():
        ends = {seed: _end(training, ended) for seed, training in of_seed.items()}
        if None not in ends.values():
            found[name] = _outcome({seed: end for seed, end in ends.items() if end is not None}, tune.metric)
    return found


def _end(training: Training, ended: Mapping[Training, Ended | None]) -> Ended | None:
    """How a training ended; a failure of what it starts from is its own."""
    if (own := ended.get(training)) is not None or training.before is None:
        return own
    before = _end(training.before, ended)
    return before if isinstance(before, str) else None


def _outcome(ends: Mapping[int, Ended], metric: str) -> Outcome:
    results = {seed: end for seed, end in ends.items() if not isinstance(end, str)}
    scores = {seed: float(result["metrics"].get(metric, math.nan)) for seed, result in results.items()}
    why = next((end for end in ends.values() if isinstance(end, str)), "")
    if not why and not all(map(math.isfinite, scores.values())):
        why = f"{metric} is not finite"
    return Outcome(
        score=None if why else sum(scores.values()) / len(scores),
        scores={seed: score for seed, score in scores.items() if math.isfinite(score)},
        epochs=max((int(result.get("epochs", 0)) for result in results.values()), default=0),
        failed=why,
    )


def _name(candidate: Candidate) -> tuple[str, str, str, int]:
    return *candidate.study, candidate.number
