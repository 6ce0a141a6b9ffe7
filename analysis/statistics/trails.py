"""What the trail of an objective says: the expected best score by budget, and how much each setting matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.tuning import Candidate, Dimension, Trail, Tuning, Value, is_number

Array = NDArray[np.float64]
_THIRDS = ("low third", "middle third", "high third")
_SHUFFLES, _CHANCE = 2000, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCurve:
    """The best validation score of an objective by its number of candidates."""

    is_trail: bool
    """Whether it is the best so far along the trail, not an expectation."""
    mean: tuple[float, ...]
    """For 1, 2, ... candidates."""
    low: tuple[float, ...]
    """One standard deviation below, but not below the lowest score; the same as ``mean`` along a trail."""
    high: tuple[float, ...]
    """One standard deviation above, but not above the highest score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How much the score of an objective varies with one setting."""

    groups: dict[str, float]
    """The mean score of the candidates by value or, of a range, by thirds; groups without a candidate are left out."""
    reach: float | None
    """The highest of these means minus the lowest; None with fewer than two groups."""
    p: float | None
    """The chance of a reach as large as that if the setting made no difference, by shuffling the scores."""

    @property
    def matters(self) -> bool:
        """Whether the reach is more than chance gives in 95 % of shuffles."""
        return self.p is not None and self.p < _CHANCE

    @property
    def best(self) -> str:
        """The group with the highest mean."""
        return max(self.groups, key=self.groups.__getitem__)


def expected_best(scores: Array, budgets: int, first: float | None = None) -> tuple[Array, Array]:
    """The best of n independent draws from the scores, n = 1, 2, ...: its mean and its standard deviation.

    In closed form from the empirical distribution: the best of n draws is at most the i-th of N sorted scores with
    probability (i / N)^n.

    Args:
        scores: the scores of the candidates that were drawn, (N,), at least one.
        budgets: the largest n.
        first: the score of a candidate that is always tried first; then n counts it, and n - 1 are drawn.

    Returns:
        Two arrays of shape (budgets,).

    Source: Dodge et al. 2019, "Show Your Work: Improved Reporting of Experimental Results", section 3.
    """
    ordered = np.sort(scores)
    reached = np.arange(len(ordered) + 1) / len(ordered)
    means, spreads = np.empty(budgets), np.empty(budgets)
    for n in range(1, budgets + 1):
        drawn = n if first is None else n - 1
        if drawn == 0:
            means[n - 1], spreads[n - 1] = first or 0.0, 0.0
            continue
        values = ordered if first is None else np.maximum(ordered, first)
        chances = np.diff(reached**drawn)
        mean = float(chances @ values)
        means[n - 1], spreads[n - 1] = mean, np.sqrt(max(0.0, float(chances @ (values - mean) ** 2)))
    return means, spreads


def budget_curve(trail: Trail, tuning: Tuning) -> BudgetCurve | None:
    """The curve of one objective; None if no candidate has a score.

    Candidates of TPE depend on those before them, so theirs is the best so far along the trail, without a band. A
    candidate without a score counts as the lowest one of its objective. A stopped one counts with what it reached,
    which is at most what it would have reached, because a score is that of the best epoch.
    """
    known = [one.score for one in trail.candidates if one.score is not None]
    if not known:
        return None
    lowest, highest = min(known), max(known)
    scores = np.array([lowest if one.score is None else one.score for one in trail.candidates])
    if tuning.search == "tpe":
        best = tuple(map(float, np.maximum.accumulate(scores)))
        return BudgetCurve(is_trail=True, mean=best, low=best, high=best)
    default = trail.default
    drawn = np.array([score for score, one in zip(scores, trail.candidates, strict=True) if not one.default])
    first = None if default is None else float(scores[default.number])
    mean, spread = expected_best(drawn if len(drawn) else scores, len(scores), first if len(drawn) else None)
    return BudgetCurve(
        is_trail=False,
        mean=tuple(map(float, mean)),
        low=tuple(map(float, np.maximum(mean - spread, np.minimum(lowest if first is None else first, mean)))),
        high=tuple(map(float, np.minimum(mean + spread, highest))),
    )


def sensitivity(trail: Trail, dimension: Dimension) -> Sensitivity | None:
    """How much the score varies with one setting that the objective has; None if fewer than two have a score."""
    known = [one for one in trail.candidates if one.score is not None]
    if dimension.name not in trail.names or len(known) < 2:
        return None
    labels, codes = np.unique([group_of(dimension, one.values[dimension.name]) for one in known], return_inverse=True)
    scores = np.array([one.score for one in known], float)
    sizes = np.bincount(codes)
    means = np.bincount(codes, scores) / sizes
    groups = {str(label): float(mean) for label, mean in zip(labels, means, strict=True)}
    groups = {name: groups[name] for name in order_of(dimension) if name in groups}
    if len(groups) < 2:
        return Sensitivity(groups=groups, reach=None, p=None)
    reach = float(np.ptp(means))
    generator = np.random.default_rng(0)
    shuffled = generator.permuted(np.tile(scores, (_SHUFFLES, 1)), axis=1)
    by_chance = np.ptp((shuffled @ np.eye(len(labels))[codes]) / sizes, axis=1)
    p = (int((by_chance >= reach - 1e-9).sum()) + 1) / (_SHUFFLES + 1)
    return Sensitivity(groups=groups, reach=reach, p=p)


def group_of(dimension: Dimension, value: Value) -> str:
    """The group of a value: itself in a list, the third of a range; beyond an end, the third at that end."""
    if dimension.values is not None:
        return _text(value)
    at = dimension.position(value)
    return _THIRDS[min(2, max(0, int(3 * (0.0 if at is None or at < 0 else at))))]


def order_of(dimension: Dimension) -> tuple[str, ...]:
    """All groups of a dimension in order."""
    return _THIRDS if dimension.values is None else tuple(map(_text, dimension.values))


def candidates_frame(tuning: Tuning) -> pd.DataFrame:
    """Every candidate as a row, as `candidates.csv` has them: validation scores alone.

    Columns: ``dataset``, ``framework``, ``backbone``, ``pair``, ``triplet``, ``candidate``, ``default``, ``chosen``,
    a column for each dimension, ``score``, ``score_SEED`` for each tuning seed, ``epochs``, ``stopped``, ``failed``.
    """
    rows = []
    for trail, own in _trails(tuning):
        for one in trail.candidates:
            row = own | {"candidate": one.number, "default": one.default, "chosen": one.number == trail.chosen}
            row |= {name: _plain(one, name) for name in tuning.dimensions} | {"score": one.score}
            row |= {f"score_{seed}": one.scores.get(str(seed)) for seed in tuning.seeds}
            rows.append(row | {"epochs": one.epochs, "stopped": one.stopped, "failed": one.failed or ""})
    return pd.DataFrame(rows)


def _trails(tuning: Tuning) -> Iterator[tuple[Trail, dict[str, object]]]:
    for block in tuning.blocks:
        own: dict[str, object] = {"dataset": block.dataset, "framework": block.framework, "backbone": block.backbone}
        for trail in block.objectives:
            yield trail, own | {"pair": trail.pair, "triplet": trail.triplet}


def _plain(one: Candidate, name: str) -> object:
    value = one.values.get(name)
    return value if is_number(value) or value is None else str(value)


def _text(value: Value) -> str:
    return f"{value:g}" if is_number(value) else str(value)
