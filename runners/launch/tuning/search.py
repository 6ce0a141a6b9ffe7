"""What a sweep's search has proposed, how far each candidate trains, and which one is best: found from the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from goal_sweep.runners.launch.tuning.proposals import propose
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import Candidate, ResolvedSweep, Space, Trail, Training, TuneConfig

Ended = Mapping[str, Any] | str
"""How a training ended: its result, or why it failed."""
Read = Callable[[Sequence[Training]], Mapping[Training, Ended | None]]
"""Reads how trainings ended; None for one that has not."""
_Sweep = TypeVar("_Sweep", bound=ResolvedSweep)


def replay(sweep: _Sweep, read: Read) -> _Sweep:
    """A sweep with the candidates, and with the choice, that follow from the results so far.

    Args:
        sweep: the sweep, which has a `tune` block.
        read: reads how trainings ended.
    """
    tune, epochs = sweep.config.tune, sweep.config.stages[-1].epochs
    assert tune is not None
    trails = [
        Trail(backbone=model.backbone.name, pair=pair, triplet=triplet, names=tuple(space.dimensions), candidates=())
        for model in sweep.config.model.models
        for (pair, triplet), space in sweep.spaces.items()
    ]
    ended: dict[Training, Ended | None] = {}
    while True:
        scored = list(_scored(replace(sweep, trails=tuple(trails)), read, ended))
        trails = [advance(trail, sweep.spaces[trail.objective], tune, epochs) for trail in scored]
        if [trail.candidates for trail in trails] == [trail.candidates for trail in scored]:
            break
    if all(trail.is_over for trail in trails):
        trails = [replace(trail, chosen=_best(trail)) for trail in trails]
    return replace(sweep, trails=tuple(trails))


class Forecast(NamedTuple):
    """The rest of a search, and what follows it."""

    rounds: tuple[tuple[Training, ...], ...]
    """All trainings of candidates. Those of a round wait for the scores of the round before."""
    candidates: tuple[int, int]
    """Candidates of the objective that has the fewest, because its settings have no more values, and of that with most.
    """
    grid: tuple[Training, ...]
    """The trainings that report: those of the sweep's own settings, and of others that the search may choose."""


def foresee(sweep: ResolvedSweep, read: Read) -> Forecast:
    """Foresee what a search will train, with the earlier candidates taken for the better ones.

    Args:
        sweep: the sweep, which has a `tune` block.
        read: reads how trainings ended.
    """
    tune, last = sweep.config.tune, sweep.config.stages[-1].name
    assert tune is not None
    bare, metric = replace(sweep, trails=()), tune.metric

    def foreseen(trainings: Sequence[Training]) -> Mapping[Training, Ended]:
        return {
            training: end or {"metrics": {metric: -float(training.number or 0)}, "epochs": training.epochs}
            for training, end in read(trainings).items()
        }

    searched = replay(bare, foreseen)
    rounds: dict[tuple[int, int], list[Training]] = {}
    for training in searched.trainings:
        if training.number is not None:
            batch = training.number // tune.batch if tune.search == "tpe" else 0
            rounds.setdefault((batch, training.begins if training.stage.name == last else 0), []).append(training)
    counts = [len(trail.candidates) for trail in searched.trails]
    # The choice is not known: the last candidate of each objective stands for it, because the first has the sweep's own
    # settings, and then no cell would be added.
    chosen = [replace(trail, chosen=len(trail.candidates) - 1) for trail in searched.trails]
    return Forecast(
        rounds=tuple(tuple(rounds[key]) for key in sorted(rounds)),
        candidates=(min(counts), max(counts)),
        grid=tuple(replace(bare, trails=sweep.trails if sweep.has_chosen else tuple(chosen)).reporting),
    )


def ends_of(
    store: Store, trainings: Sequence[Training], max_attempts: int, *, retried: bool = False
) -> dict[Training, Ended | None]:
    """How trainings ended; None for those that have not.

    Args:
        store: the store.
        trainings: the trainings.
        max_attempts: attempts after which a training has failed.
        retried: failed ones will be tried again, so they have not ended.
    """
    ends: dict[Training, Ended | None] = dict.fromkeys(trainings)
    for training, status in store.status(trainings, max_attempts=max_attempts).items():
        if status.state == "done":
            ends[training] = status.result
        elif status.state == "failed" and not retried:
            ends[training] = status.reason or "it failed"
    return ends


def describe(sweep: ResolvedSweep) -> str:
    """What a sweep's search does now, in words."""
    tune, trails = sweep.config.tune, sweep.trails
    assert tune is not None
    if all(trail.is_over for trail in trails):
        chosen = [trail.choice for trail in trails if trail.choice is not None]
        return (
            f"search over: {sum(not candidate.default for candidate in chosen)} of {len(chosen)} objectives get other "
            "constants than the sweep's own; the default and the tuned grid report"
        )
    candidates = [candidate for trail in trails for candidate in trail.candidates]
    counts = [len(trail.candidates) for trail in trails]
    made = " to ".join(map(str, sorted({min(counts), max(counts)})))
    rung = min((candidate.until for candidate in candidates if candidate.until and not candidate.ended), default=0)
    until, ended = f", to epoch {rung}" * bool(rung), sum(candidate.ended for candidate in candidates)
    return (
        f"search {tune.search}: {made} of {tune.budget} candidates per objective{until}, "
        f"{ended} of {len(candidates)} ended"
    )


def advance(trail: Trail, space: Space, tune: TuneConfig, epochs: int) -> Trail:
    """Ask for what follows from the scores: further epochs of the better candidates, or more candidates.

    Args:
        trail: the candidates by now, with their scores.
        space: what is searched.
        tune: the sweep's `tune` block.
        epochs: of the last stage.
    """
    ends = (*(tune.stop_early.rungs(epochs) if tune.stop_early else ()), 0)
    cohorts = [trail.candidates[at : at + tune.batch] for at in range(0, len(trail.candidates), tune.batch)]
    candidates = tuple(candidate for cohort in cohorts for candidate in _raised(cohort, ends, tune))
    if not all(candidate.ended for candidate in candidates):
        return replace(trail, candidates=candidates)
    new = [
        Candidate(number=number, values=values, default=tune.include_default and number == 0, until=ends[0])
        for number, values in enumerate(propose(space, tune, candidates), start=len(candidates))
    ]
    return replace(trail, candidates=(*candidates, *new), is_over=not new)


def _raised(cohort: Sequence[Candidate], ends: Sequence[int], tune: TuneConfig) -> Iterator[Candidate]:
    """A cohort whose best candidates go on, once all that are still in it have ended.

    Optuna's pruner decides by the candidates that ended before, so that the order in which trainings end would matter.

    Args:
        cohort: candidates that are compared with each other.
        ends: the epochs to which a candidate is trained, one after the other; 0 is the last.
        tune: the sweep's `tune` block.
    """
    level = max(ends.index(candidate.until) for candidate in cohort)
    members = [candidate for candidate in cohort if candidate.until == ends[level]]
    best: list[Candidate] = []
    if tune.stop_early is not None and level + 1 < len(ends) and all(candidate.ended for candidate in members):
        best = _ranked(members)[: math.ceil(len(cohort) / tune.stop_early.factor ** (level + 1))]
    for candidate in cohort:
        # The sweep's own settings go on, so that what is chosen is at least as good on val.
        if candidate in best or (best and candidate.default and candidate in members and not candidate.failed):
            yield Candidate(
                number=candidate.number, values=candidate.values, default=candidate.default, until=ends[level + 1]
            )
        else:
            yield candidate


def _best(trail: Trail) -> int | None:
    """The candidate with the highest score, of equal ones the first; one that was stopped only if no other is left."""
    best = max(_ranked(trail.candidates), key=lambda candidate: candidate.until or math.inf, default=None)
    return None if best is None else best.number


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that have a score, the highest first; of equal ones the first comes first."""
    scored = [candidate for candidate in candidates if candidate.score is not None]
    return sorted(scored, key=lambda candidate: candidate.score or 0.0, reverse=True)


def _scored(sweep: ResolvedSweep, read: Read, ended: dict[Training, Ended | None]) -> Iterator[Trail]:
    """The trails with the scores of candidates that ended at the epochs to which they train by now.

    Args:
        sweep: the sweep with its trails.
        read: reads how trainings ended.
        ended: what was read already; receives the rest.
    """
    tune = sweep.config.tune
    assert tune is not None
    ended.update(
        read([training for training in sweep.trainings if training.number is not None and training not in ended])
    )
    last: dict[tuple[str, str, str, int | None, int], list[Training]] = {}
    for training in sweep.by_stage[-1]:
        cell = training.cell
        study = cell.model.backbone.name, cell.objective.pair, cell.objective.triplet
        last.setdefault((*study, training.number, training.until), []).append(training)
    for trail in sweep.trails:
        candidates = []
        for candidate in trail.candidates:
            trainings = last[trail.backbone, trail.pair, trail.triplet, candidate.number, candidate.until]
            ends = {training.cell.seed: _end(training, ended) for training in trainings}
            candidates.append(_with_score(candidate, ends, tune.metric))
        yield replace(trail, candidates=tuple(candidates))


def _end(training: Training, ended: Mapping[Training, Ended | None]) -> Ended | None:
    """How a training ended; a failure of what it starts from is its own."""
    if (own := ended.get(training)) is not None or training.before is None:
        return own
    before = _end(training.before, ended)
    return before if isinstance(before, str) else None


def _with_score(candidate: Candidate, ends: Mapping[int, Ended | None], metric: str) -> Candidate:
    if None in ends.values():
        return candidate
    results = {str(seed): end for seed, end in sorted(ends.items()) if isinstance(end, Mapping)}
    scores = {seed: float(result["metrics"].get(metric, math.nan)) for seed, result in results.items()}
    finite = {seed: score for seed, score in scores.items() if math.isfinite(score)}
    why = next((end for end in ends.values() if isinstance(end, str)), "")
    if not why and len(finite) < len(scores):
        why = f"{metric} is not finite"
    score = None if why else sum(scores.values()) / len(scores)
    epochs = max((int(result.get("epochs", 0)) for result in results.values()), default=0)
    return replace(candidate, score=score, scores=finite, epochs=epochs, failed=why)
