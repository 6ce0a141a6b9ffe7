"""The one rule for "within noise": which objectives of a block cannot be told apart from the best.

Every statement on the difference of two objectives of a block follows from it: marks, words and MLflow.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from analysis.blocks import Difference, Objective
from analysis.run_schema import BASELINE

ALPHA = 0.05
"""The probability that any of the statements on a grid of equal objectives is false."""
_ROUNDING = 1e-9
"""Points; a difference below is a rounding error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The objectives of a block compared with each other by one metric."""

    best: Objective | None
    """The objective with the highest mean; None without values."""
    level: frozenset[Objective]
    """Those that cannot be told apart from the best, without the best itself."""
    unjudged: frozenset[Objective]
    """Those without an interval of their difference from the best."""
    seeds: int
    """The number of seeds with a value."""
    _fit: _Fit | None = field(repr=False)

    def difference(self, one: Objective, other: Objective) -> Difference:
        """One minus other, under the same rule as ``level``.

        Raises:
            KeyError: one of them has no value.
        """
        if self._fit is None:
            raise KeyError(one)
        return self._fit.difference(one, other)

    @property
    def gain(self) -> Difference | None:
        """The best minus con/con; None where either has no value, or they are the same."""
        if self._fit is None or self.best is None or self.best == BASELINE or BASELINE not in self._fit.names:
            return None
        return self.difference(self.best, BASELINE)


def compare(values: pd.DataFrame) -> Comparison:
    """Compare the objectives of a block.

    Args:
        values: a row for each seed, a column for each objective (pair, triplet), entries recalls in points; NaN where
            a run is missing.
    """
    known = values.dropna(axis=0, how="all").dropna(axis=1, how="all")
    names = tuple((str(name[0]), str(name[1])) for name in known.columns)
    if not names:
        return Comparison(best=None, level=frozenset(), unjudged=frozenset(), seeds=0, _fit=None)
    fit = _fitted(names, known.to_numpy(float))
    best = names[int(np.argmax(known.mean().to_numpy()))]
    against = {name: fit.difference(best, name) for name in names if name != best}
    return Comparison(
        best=best,
        level=frozenset(name for name, d in against.items() if d.low is not None and d.low <= 0),
        unjudged=frozenset(name for name, d in against.items() if d.low is None),
        seeds=len(known),
        _fit=fit,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Means adjusted for seeds, by least squares, with a pooled residual."""

    names: tuple[Objective, ...]
    means: NDArray[np.float64]
    covariance: NDArray[np.float64]
    df: int

    def difference(self, one: Objective, other: Objective) -> Difference:
        i, j = (self._index(name) for name in (one, other))
        estimate = float(self.means[i] - self.means[j])
        if not self.df:
            return Difference(estimate=estimate, low=None, high=None, p=None)
        covariance = self.covariance
        error = float(max(covariance[i, i] + covariance[j, j] - 2 * covariance[i, j], 0.0)) ** 0.5
        if error <= _ROUNDING:
            return Difference(estimate=estimate, low=estimate, high=estimate, p=float(abs(estimate) <= _ROUNDING))
        reach = _critical(len(self.names), self.df) * error
        p = float(stats.studentized_range.sf(abs(estimate) / error * 2**0.5, len(self.names), self.df))
        return Difference(estimate=estimate, low=estimate - reach, high=estimate + reach, p=p)

    def _index(self, name: Objective) -> int:
        if name not in self.names:
            raise KeyError(name)
        return self.names.index(name)


@cache
def _critical(num: int, df: int) -> float:
    return float(stats.studentized_range.ppf(1 - ALPHA, num, df)) / 2**0.5


def _fitted(names: tuple[Objective, ...], values: NDArray[np.float64]) -> _Fit:
    num_seeds, num = values.shape
    seeds, objectives = np.nonzero(~np.isnan(values))
    design = np.zeros((len(seeds), num + num_seeds))
    design[np.arange(len(seeds)), objectives] = 1
    design[np.arange(len(seeds)), num + seeds] = 1
    observed = values[seeds, objectives]
    centre = observed.mean()
    inverse = np.linalg.pinv(design)
    coefficients = inverse @ (observed - centre)
    residuals = observed - centre - design @ coefficients
    df = len(observed) - int(np.linalg.matrix_rank(design))
    variance = float(residuals @ residuals) / df if df else np.nan
    means, covariance = coefficients[:num] + centre, variance * (inverse @ inverse.T)[:num, :num]
    return _Fit(names=names, means=means, covariance=covariance, df=df)
