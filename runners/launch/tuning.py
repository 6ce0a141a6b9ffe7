"""The search for each objective's constants: what it proposes next, and what it chose.

A search keeps no state: its candidates follow from the sweep file and from the scores in the store, for every command.
They are drawn without scores, or by Optuna's tree-structured Parzen estimator (Bergstra et al. 2011, "Algorithms for
hyper-parameter optimization"; implementation: optuna.samplers.TPESampler).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.runners.store import Store
from goal_sweep.sweeps import Candidate, ResolvedSweep, Study, SweepPlaces, Training
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.results import TUNED
from goal_sweep.sweeps.tuning import Dimension, Space, TuneConfig, Values

if TYPE_CHECKING:
    from optuna import Study as OptunaStudy

    from goal_sweep.runners.results import ResultsTable

Ended = Mapping[str, Any] | str
"""How a training ended: its result, or why it failed."""
Read = Callable[[Sequence[Training]], Mapping[Training, Ended | None]]
"""Reads how trainings ended; None for one that has not."""
_Sweep = TypeVar("_Sweep", bound=ResolvedSweep)
RANDOM_FIRST = 8
"""Candidates before the first that depends on scores: those of random search, as Optuna begins too."""
_TRIES = 20
"""Proposals in a row that repeat earlier ones, after which the next candidate is drawn at random."""


def replay(sweep: _Sweep, read: Read) -> _Sweep:
    """A sweep that has a `tune` block, with the candidates and the choice that follow from the results so far."""
    tune, names = sweep.config.tune, sweep.spaces
    assert tune is not None
    studies = [
        Study(backbone=one.name, pair=pair, triplet=triplet, names=tuple(space.dimensions), candidates=())
        for one in sweep.config.model.backbones
        for (pair, triplet), space in names.items()
    ]
    ended: dict[Training, Ended | None] = {}
    while True:
        studies, proposed = _scored(replace(sweep, studies=tuple(studies)), read, ended), 0
        for place, study in enumerate(studies):
            if all(candidate.ended for candidate in study.candidates):
                new = propose(names[study.objective], tune, study.candidates)
                numbered, default = enumerate(new, start=len(study.candidates)), tune.include_default
                added = [Candidate(number=n, values=one, default=default and n == 0) for n, one in numbered]
                studies[place] = replace(study, candidates=(*study.candidates, *added), is_over=not new)
                proposed += len(new)
        if not proposed:
            break
    if all(study.is_over for study in studies):
        studies = [replace(study, chosen=_best(study)) for study in studies]
    return replace(sweep, studies=tuple(studies))


class Forecast(NamedTuple):
    """The rest of a search, and what follows it."""

    rounds: tuple[tuple[Training, ...], ...]
    """All trainings of candidates. Those of a round wait for the scores of the round before."""
    candidates: tuple[int, int]
    """The fewest candidates that an objective has, because its settings have no more values, and the most."""
    grid: tuple[Training, ...]
    """The trainings that report: those of the sweep's own settings, and of others that the search may choose."""


def foresee(sweep: ResolvedSweep, read: Read) -> Forecast:
    """Foresee what a search will train, with the earlier candidates taken for the better ones."""
    tune = sweep.config.tune
    assert tune is not None
    bare, metric = replace(sweep, studies=()), tune.metric

    def foreseen(trainings: Sequence[Training]) -> Mapping[Training, Ended]:
        return {one: end or {"metrics": {metric: -float(one.number or 0)}} for one, end in read(trainings).items()}

    searched = replay(bare, foreseen)
    rounds: dict[int, list[Training]] = {}
    for training in searched.trainings:
        if training.number is not None:
            rounds.setdefault(training.number // tune.batch if tune.search == "tpe" else 0, []).append(training)
    counts = [len(study.candidates) for study in searched.studies]
    chosen = sweep.studies
    if not chosen or sweep.is_searching:
        # The choice is not known: the last candidate of each objective stands for it, because the first has the sweep's
        # own settings, and then no cell would be added.
        chosen = tuple(replace(study, chosen=len(study.candidates) - 1) for study in searched.studies)
    return Forecast(
        rounds=tuple(tuple(rounds[number]) for number in sorted(rounds)),
        candidates=(min(counts), max(counts)),
        grid=tuple(replace(bare, studies=chosen).reporting),
    )


def ends_of(
    store: Store, trainings: Sequence[Training], max_attempts: int, *, retried: bool = False
) -> dict[Training, Ended | None]:
    """How trainings ended; None for those that have not, and with `retried` also for those that failed."""
    ends: dict[Training, Ended | None] = dict.fromkeys(trainings)
    for training, status in store.status(trainings, max_attempts=max_attempts).items():
        if status.state == "done":
            ends[training] = status.result
        elif status.state == "failed" and not retried:
            ends[training] = status.reason or "it failed"
    return ends


def describe(sweep: ResolvedSweep) -> str:
    """What a sweep's search does now, in words."""
    tune, studies = sweep.config.tune, sweep.studies
    assert tune is not None
    if all(study.is_over for study in studies):
        chosen = [study.choice for study in studies if study.choice is not None]
        others = f"{sum(not candidate.default for candidate in chosen)} of {len(chosen)} objectives"
        return f"search over: {others} get other constants than the sweep's own; the default and the tuned grid report"
    ended = [candidate.ended for study in studies for candidate in study.candidates]
    made = " to ".join(map(str, sorted({f(len(study.candidates) for study in studies) for f in (min, max)})))
    return f"search {tune.search}: {made} of {tune.budget} candidates per objective, {sum(ended)} of {len(ended)} ended"


def _best(study: Study) -> int | None:
    scored = [candidate for candidate in study.candidates if candidate.score is not None]
    return max(scored, key=lambda candidate: candidate.score or 0.0).number if scored else None


def _scored(sweep: ResolvedSweep, read: Read, ended: dict[Training, Ended | None]) -> list[Study]:
    """The studies with the scores of candidates that ended; `ended` has what was read, and receives the rest."""
    assert sweep.config.tune is not None
    candidates = [training for training in sweep.trainings if training.number is not None]
    ended.update(read([training for training in candidates if training not in ended]))
    last: dict[tuple[object, ...], dict[int, Ended | None]] = {}
    for training in sweep.by_stage[-1]:
        model, objective = training.cell.model, training.cell.objective
        own = last.setdefault((model.backbone.name, objective.pair, objective.triplet, training.number), {})
        own[training.cell.seed] = _end(training, ended)
    metric = sweep.config.tune.metric

    def scored(study: Study, one: Candidate) -> Candidate:
        return _with_score(one, last[study.backbone, *study.objective, one.number], metric)

    return [replace(own, candidates=tuple(scored(own, one) for one in own.candidates)) for own in sweep.studies]


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
    return replace(candidate, score=score, scores=finite, failed=why)


def propose(space: Space, tune: TuneConfig, before: Sequence[Candidate]) -> list[Values]:
    """The next candidates of an objective: with `tpe` to the end of a batch, with other searches all that there are.

    They depend on the arguments alone, and each only on those before it; so a smaller budget gives the first of them.
    They differ from all earlier ones; there are none where the budget is spent, or the space has no more.
    """
    if tune.search != "tpe":
        return space.without_scores(tune.budget)[len(before) :]
    tried = [candidate.values for candidate in before]
    scored, study = any(candidate.score is not None for candidate in before), None
    for number in range(len(before), min(tune.budget, (len(before) // tune.batch + 1) * tune.batch)):
        asked: Iterator[Values] = iter(())
        if number >= RANDOM_FIRST and space.dimensions and scored:
            study = study or _study(space, tune.search_seed, before)
            asked = _asked(study, space)
        proposals = chain(space.first(), asked, space.random())
        if (new := next(space.distinct(proposals, tried), None)) is None:
            break
        tried.append(space.shown(new))
    return tried[len(before) :]


def _study(space: Space, seed: int, before: Sequence[Candidate]) -> OptunaStudy:
    """A study that has a finished trial for every score by now."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = json.dumps([seed, len(before), *space.dimensions, *space.name])
    own = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    # A proposal whose score is not known yet counts as bad (`constant_liar`), so that those of a batch differ.
    sampler = optuna.samplers.TPESampler(seed=own, n_startup_trials=1, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for candidate in before:
        params = {name: _position(space.dimensions[name], value) for name, value in candidate.values.items()}
        # The sweep's own settings may lie outside of the space; then they tell nothing about it.
        if candidate.score is not None and None not in params.values():
            distributions, score = _distributions(space), candidate.score
            study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=score))
    return study


def _asked(study: OptunaStudy, space: Space) -> Iterator[Values]:
    for _ in range(_TRIES):
        asked = study.ask(_distributions(space)).params
        yield {
            name: own.domain.choice[asked[name]] if own.domain.choice else own.rounded(asked[name])
            for name, own in space.dimensions.items()
        }


def _distributions(space: Space) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    return {
        name: CategoricalDistribution(range(len(own.domain.choice)))
        if own.domain.choice
        else FloatDistribution(*own.domain.bounds, log=bool(own.domain.loguniform))
        for name, own in space.dimensions.items()
    }


def _position(dimension: Dimension, value: AxisValue) -> Any:
    """A value as the study knows it; None if it is not in the space."""
    if dimension.domain.choice:
        return next((number for number, known in enumerate(dimension.domain.choice) if known == value), None)
    low, high = dimension.domain.bounds
    return value if isinstance(value, int | float) and low <= value <= high else None


def refreshed_results(store: Store, config: SweepPlaces) -> ResultsTable | None:
    """A sweep's results table, brought up to date with the store; None if the store has none.

    The table shows the sweep as it was last launched, whatever its file says now. What an earlier goal-sweep trained
    under other keys, or a plugin that does not run now, stays as it was written.
    """
    from goal_sweep.runners.results import listed_again, read_results, update_results  # with pyarrow

    before = read_results(store, config.name)
    if before is None:
        return None
    try:
        sweep = listed_again(before.header, config)
    except ConfigError:  # of settings that this goal-sweep does not know
        return before
    if sweep.config.tune is not None and not sweep.studies:
        sweep = replay(sweep, lambda trainings: ends_of(store, trainings, sweep.config.resources.max_attempts))
    asked = {training.key for training in sweep.trainings}
    if any(row["training"] not in asked for row in before.rows(("training", "grid")) if row["grid"] != TUNED):
        return before
    return update_results(store, sweep, must_write=False)
