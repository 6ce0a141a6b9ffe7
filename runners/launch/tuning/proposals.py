"""What a search proposes: candidates without scores, or those of Optuna's tree-structured Parzen estimator.

Source: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization"; implementation: optuna.samplers.TPESampler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from goal_sweep.sweeps import Candidate
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.tuning import Space, TuneConfig
from goal_sweep.sweeps.tuning.space import Dimension
from goal_sweep.sweeps.tuning.study import Values

if TYPE_CHECKING:
    from optuna import Study

RANDOM_FIRST = 8
"""Candidates before the first that depends on scores: those of random search, as Optuna begins too."""
_TRIES = 20
"""Proposals in a row that repeat earlier ones, after which the next candidate is drawn at random."""


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


def _study(space: Space, seed: int, before: Sequence[Candidate]) -> Study:
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


def _asked(study: Study, space: Space) -> Iterator[Values]:
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
