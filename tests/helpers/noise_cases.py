"""Simulated grids of 15 objectives, and how often a rule is wrong or right about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics.comparison import compare
from analysis.statistics.effects import EFFECTS, p_values
from sweeps.results import OBJECTIVES

Array = NDArray[np.float64]
P, T = 5, 3
LOW, NOISY = 3, 7
"""The positions of the shifted and of the noisy objective."""
COLUMNS = pd.MultiIndex.from_tuples(OBJECTIVES, names=["pair", "triplet"])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is true of the grids; shifts and spreads in standard deviations of a run."""

    one: float = 0.0
    """Shift of one objective."""
    half: float = 0.0
    """Shift of the first seven objectives."""
    pair: float = 0.0
    """Shift of one pair weight."""
    triplet: float = 0.0
    """Shift of one triplet weight."""
    shared: float = 0.0
    """Spread of what a seed does to all objectives."""
    shared_by_pair: float = 0.0
    """Spread of what a seed does to all objectives of one pair weight."""
    noisy: float = 1.0
    """Spread of one objective."""
    missing: float = 0.0
    """Probability that a run is missing; one of each objective stays."""

    def grids(self, seeds: int, number: int) -> Iterator[Array]:
        """Values (seeds, 15), NaN where a run is missing; the same for the same arguments."""
        generator = np.random.default_rng(11)
        truth = np.zeros((P, T))
        truth[1] += self.pair
        truth[:, 1] += self.triplet
        flat = truth.ravel()
        flat[LOW] += self.one
        flat[:7] += self.half
        spread = np.ones(P * T)
        spread[NOISY] = self.noisy
        for _ in range(number):
            values = flat + spread * generator.standard_normal((seeds, P * T))
            values += self.shared * generator.standard_normal((seeds, 1))
            values += self.shared_by_pair * np.repeat(generator.standard_normal((seeds, P)), T, axis=1)
            gone = generator.random((seeds, P * T)) < self.missing
            gone[generator.integers(seeds, size=P * T), np.arange(P * T)] = False
            values[gone] = np.nan
            yield values


Rule = Callable[[Array], NDArray[np.bool_]]
"""From values (seeds, 15) to which objectives are marked as worse than the best."""


def ours(values: Array) -> NDArray[np.bool_]:
    found = compare(pd.DataFrame(values, columns=COLUMNS))
    unmarked = {found.best, *found.level, *found.unjudged}
    return np.array([objective not in unmarked for objective in OBJECTIVES])


def paired_t(values: Array) -> NDArray[np.bool_]:
    """A paired t test of each objective against the one with the highest mean, at 5 %, uncorrected."""
    best = int(np.nanmean(values, axis=0).argmax())
    p = stats.ttest_rel(values[:, [best]], np.delete(values, best, axis=1)).pvalue
    return np.insert(p < 0.05, best, False)


def false_mark(scenario: Scenario, seeds: int, number: int, rule: Rule = ours) -> float:
    """The share of null grids with any objective marked as worse, in percent."""
    return 100 * float(np.mean([rule(values).any() for values in scenario.grids(seeds, number)]))


def power(scenario: Scenario, seeds: int, number: int, rule: Rule = ours) -> float:
    """The share of the objectives that are truly below the best that are marked, in percent, without the noisy one."""
    worse = np.zeros(P * T, bool)
    if scenario.one:
        worse[:] = scenario.one > 0
        worse[LOW] = scenario.one < 0
    if scenario.half:
        worse[:7] = scenario.half < 0
    if scenario.noisy != 1:
        worse[NOISY] = False
    return 100 * float(np.mean([rule(values)[worse].mean() for values in scenario.grids(seeds, number)]))


def false_pair(scenario: Scenario, seeds: int, number: int) -> float:
    """The share of grids with any false statement on two objectives, in percent: told apart though they are equal, or
    in the wrong order."""
    truth = np.zeros(P * T)
    truth[LOW] += scenario.one
    truth[:7] += scenario.half
    wrong = 0
    for values in scenario.grids(seeds, number):
        found = compare(pd.DataFrame(values, columns=COLUMNS)).differences
        pairs = ((OBJECTIVES.index(one), OBJECTIVES.index(other), change) for (one, other), change in found.items())
        wrong += any(change.told_apart and truth[i] - truth[j] <= 0 < change.estimate for i, j, change in pairs)
    return 100 * wrong / number


def effect_rates(scenario: Scenario, seeds: int, number: int) -> dict[str, float]:
    """How often each effect is said to matter, in percent."""
    found = [p_values(values.reshape(seeds, P, T)) for values in scenario.grids(seeds, number)]
    return {name: 100 * sum(p[name] < 0.05 for p in found) / number for name in EFFECTS}
