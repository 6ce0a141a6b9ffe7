"""What the trail of an objective says: how thinly its space was searched, and where a choice lies in its range."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pandas as pd
from typing_extensions import TypeIs

from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.wording import count_text
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.results import Header
from goal_sweep.sweeps.tuning import Dimension
from goal_sweep.sweeps.tuning.trail import Trail

EDGE = 0.05
"""The share of a range, at either end, in which a choice is said to lie on its edge."""


def num_combinations(header: Header, trail: Trail) -> float:
    """How many different candidates an objective's space has at most; infinite where a setting has a range."""
    domains = [header.dimensions[name].domain for name in trail.names]
    return math.prod(len(domain.choice) or math.inf for domain in domains)


def values_tried(header: Header, trail: Trail) -> float:
    """How many values of each setting an objective's candidates amount to: the effective size of its search.

    So many candidates fill a lattice of so many values a setting. Objectives with the same budget and more settings try
    fewer values of each. 0 without a setting.
    """
    tried = min(len(trail.candidates), num_combinations(header, trail))
    return tried ** (1 / len(trail.names)) if trail.names else 0.0


def is_number(value: AxisValue) -> TypeIs[int | float]:
    """Whether a value is a number, not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def ends_of(dimension: Dimension) -> tuple[float, float] | None:
    """The lowest and the highest value of a setting; None where values are no numbers, or the same."""
    if not dimension.domain.choice:
        return dimension.domain.bounds
    numbers = [value for value in dimension.domain.choice if is_number(value)]
    if len(numbers) < len(dimension.domain.choice) or len(set(numbers)) < 2:
        return None
    return float(min(numbers)), float(max(numbers))


def is_log(dimension: Dimension) -> bool:
    """Whether positions are counted in powers: a range that is searched so, or a list over a factor of ten."""
    ends = ends_of(dimension)
    if dimension.domain.kind in ("uniform", "loguniform") or ends is None:
        return dimension.domain.kind == "loguniform"
    return ends[0] > 0 and ends[1] / ends[0] >= 10


def position(dimension: Dimension, value: AxisValue) -> float | None:
    """Where a value lies between the ends, from 0 to 1, outside of which it may lie; None where there are none."""
    ends = ends_of(dimension)
    if ends is None or not is_number(value):
        return None
    low, high, at = *ends, float(value)
    if is_log(dimension):
        if at <= 0:
            return -math.inf
        low, high, at = math.log(low), math.log(high), math.log(at)
    return (at - low) / (high - low)


def edge(dimension: Dimension, value: AxisValue) -> str:
    """``lower edge``, ``upper edge``, ``below the range``, ``above the range``, or an empty string.

    A value of a list lies on an edge if it is the lowest or the highest of at least three.
    """
    at, listed = position(dimension, value), dimension.domain.choice
    if at is None:
        return ""
    if at < -1e-9 or at > 1 + 1e-9:
        return "below the range" if at < 0 else "above the range"
    if listed and len(listed) < 3:
        return ""
    near = 1e-9 if listed else EDGE
    return "lower edge" if at <= near else "upper edge" if at >= 1 - near else ""


def candidates_frame(results: SweepResults) -> pd.DataFrame:
    """Every candidate as a row, as `candidates.csv` has them: validation scores alone.

    Columns: ``dataset``, ``framework``, ``backbone``, ``pair``, ``triplet``, ``candidate``, ``default``, ``chosen``,
    a column for each searched setting, ``score``, ``score_SEED`` for each seed of the search, ``failed``.
    """
    header, rows = results.header, list[dict[str, Any]]()
    seeds = () if header.tune is None else header.tune.seeds
    model: dict[str, Any] = {name: str(results.runs[name].iloc[0]) for name in ("dataset", "framework")}
    for trail in header.trails:
        own = model | {"backbone": trail.backbone, "pair": trail.pair, "triplet": trail.triplet}
        for one in trail.candidates:
            row = own | {"candidate": one.number, "default": one.default, "chosen": one.number == trail.chosen}
            values = {name: one.values.get(name) for name in header.dimensions}
            row |= {name: v if v is None or is_number(v) else str(v) for name, v in values.items()}
            row |= {"score": one.score, **{f"score_{seed}": one.scores.get(str(seed)) for seed in seeds}}
            rows.append(row | {"failed": one.failed})
    return pd.DataFrame(rows)


def progress_text(results: SweepResults) -> str:
    """How far a sweep that has not chosen yet has come: "Still tuning: 12 of 16 candidates per objective; ..."."""
    ended: Counter[tuple[str, ...]] = Counter()
    for key, runs in results.candidates.groupby(["backbone", "pair", "triplet", "candidate"]):
        ended[tuple(map(str, key[:-1]))] += int(runs["status"].isin(("done", "failed")).all())
    budget = results.header.tune.budget if results.header.tune else 0
    low, high = min(ended.values(), default=0), max(ended.values(), default=0)
    number = str(low) if low == high else f"{low} to {high}"
    done = len(results.counted)
    cells = f"{count_text(done, 'reporting run')} done" if done else "no reporting cell yet"
    return f"Still tuning: {number} of {budget} candidates per objective; {cells}."
