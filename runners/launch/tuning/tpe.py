"""Proposals of Optuna's tree-structured Parzen estimator, a batch at a time.

Source: Bergstra et al. 2011, "Algorithms for hyper-parameter optimization"; implementation: optuna.samplers.TPESampler.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from sweeps import Space
from sweeps.axes import AxisValue
from sweeps.tuning.space import Dimension, Values

if TYPE_CHECKING:
    from optuna import Study, Trial

RANDOM_FIRST = 8
"""Candidates before the first that depends on scores: those of random search, as Optuna begins too."""
_TRIES = 20
"""Proposals in a row that repeat earlier ones, after which the next candidate is drawn at random."""


def propose(space: Space, seed: int, before: Sequence[tuple[Values, float | None]], count: int) -> list[Values]:
    """The next candidates of an objective.

    They depend on the arguments alone, and each only on those before it; so a smaller count gives the first of them.

    Args:
        space: what is searched.
        seed: of the search.
        before: all earlier candidates with their scores, in order; None for one that has none.
        count: how many to propose.

    Returns:
        Candidates that differ from all earlier ones; fewer than asked where the space has no more.
    """
    found = [values for values, _ in before]
    study = None
    for number in range(len(before), len(before) + count):
        scores = [score for _, score in before if score is not None]
        new: Values | None = None
        if number >= RANDOM_FIRST and scores and space.dimensions:
            study = study or _study(space, seed, before)
            new = next(space.distinct(_asked(study, space, min(scores)), found), None)
        if new is None:
            new = next(space.distinct(space.random(), found), None)
        if new is None:
            break
        found.append(new)
    return found[len(before) :]


def _study(space: Space, seed: int, before: Sequence[tuple[Values, float | None]]) -> Study:
    """A study that knows the scores by now."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    name = json.dumps([seed, len(before), *space.names, *space.name])
    own = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    sampler = optuna.samplers.TPESampler(seed=own, n_startup_trials=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {one.key: _distribution(one) for one in space.dimensions}
    for values, score in before:
        params = {one.key: _position(one, value) for one, value in _settings(space, values)}
        # The sweep's own settings may lie outside of the space; then they tell nothing about it.
        if score is not None and None not in params.values():
            trial = optuna.trial.create_trial(params=params, distributions=distributions, value=score)
            study.add_trial(trial)
    return study


def _asked(study: Study, space: Space, lie: float) -> Iterator[Values]:
    """What a study proposes. Until its score is known, a proposal counts as bad, so that the next one differs."""
    distributions = {one.key: _distribution(one) for one in space.dimensions}
    for trial in islice(iter(lambda: study.ask(distributions), None), _TRIES):
        yield {one.key: _value(one, trial) for one in space.dimensions}
        study.tell(trial, lie)


def _distribution(one: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if one.domain.values:
        return CategoricalDistribution(range(len(one.domain.values)))
    low, high = one.domain.bounds
    return FloatDistribution(low, high, log=one.domain.kind == "loguniform")


def _settings(space: Space, values: Values) -> Iterator[tuple[Dimension, AxisValue]]:
    return zip(space.dimensions, space.shown(values).values(), strict=True)


def _position(one: Dimension, value: AxisValue) -> Any:
    """A value as the study knows it; None if it is not in the space."""
    if one.domain.values:
        return next((number for number, known in enumerate(one.domain.values) if known == value), None)
    low, high = one.domain.bounds
    return value if isinstance(value, int | float) and low <= value <= high else None


def _value(one: Dimension, trial: Trial) -> AxisValue:
    asked = trial.params[one.key]
    return one.domain.values[asked] if one.domain.values else one.rounded(asked)
