"""Simulated grids of 15 objectives, and how often the rule of a report is wrong or right about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from goal_sweep.analysis.blocks import ALPHA, BlockKey, CellSummary, Comparison
from goal_sweep.analysis.published.comparison import compare_cells, verdict_of
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.comparison import compare
from goal_sweep.analysis.statistics.effects import EFFECTS, p_values
from goal_sweep.analysis.statistics.gains import fates
from goal_sweep.analysis.statistics.images import covariance
from goal_sweep.analysis.statistics.luck import luck_of_search
from goal_sweep.analysis.statistics.spread import judge
from goal_sweep.sweeps.results import DEFAULT, METRICS, OBJECTIVES, PAIRS, TRIPLETS, TUNED, Header, Requested
from goal_sweep.sweeps.tuning.trail import Candidate, Trail
from tests.helpers.tuned_cases import TUNE

Array = NDArray[np.float64]
P, T = len(PAIRS), len(TRIPLETS)
COLUMNS = pd.MultiIndex.from_tuples(OBJECTIVES, names=["pair", "triplet"])
_PLACE = {"backbone": "b", "stage": "s"}
_HEADER = Header(
    sweep="", seeds=(), objectives=OBJECTIVES, stages=("s",), points={}, tune=TUNE,
    requested=Requested(config={}, data_fingerprint="", weights={}),
)  # fmt: skip
HALF = {f"{pair}/{triplet}": -4.0 for pair, triplet in OBJECTIVES[:7]}
"""Shifts of nearly half the objectives."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is true of the grids, in standard deviations of a run (in points with images)."""

    shifts: Mapping[str, float] = field(default_factory=dict)
    """By objective, pair weight or triplet weight (``con/con``, ``con/``, ``/con``)."""
    spreads: Mapping[str, float] = field(default_factory=dict)
    """Standard deviations of the same; 1 for all others."""
    lognormal: float = 0.0
    """Spread of the logarithm of the standard deviations."""
    shared: float = 0.0
    """Spread of what a seed does to all objectives."""
    by_pair: float = 0.0
    """Spread of what a seed does to all objectives of one pair weight."""
    by_triplet: float = 0.0
    """The same for a triplet weight."""
    by_cir: float = 0.0
    """The same for cir alone."""
    missing: float = 0.0
    """Probability that a run is missing; one of each objective stays."""
    two_runs: str = ""
    """An objective of which only two runs are there."""
    step: float = 0.0
    """To a multiple of which values are rounded, as recalls of a number of queries are."""
    images: float = 0.0
    """With test images as of the quickstart: what an image does to each objective, times this."""
    search: Mapping[str, float] = field(default_factory=dict)
    """By objective as above: how much its settings matter, of which a search of 16 candidates has chosen."""

    @property
    def truth(self) -> Array:
        """The objectives' means, row by row."""
        return _by_objective(self.shifts, 0.0)

    def grids(self, seeds: int, number: int, start: int = 11) -> Iterator[tuple[Array, Array | None]]:
        """Values (seeds, 15), NaN where a run is missing, and the covariance over images, as a report computes it."""
        generator = np.random.default_rng(start)
        for _ in range(number):
            spreads = _by_objective(self.spreads, 1.0) * np.exp(self.lognormal * generator.standard_normal(P * T))
            values = self.truth + spreads * generator.standard_normal((seeds, P * T))
            values += self.shared * generator.standard_normal((seeds, 1))
            values += self.by_pair * np.repeat(generator.standard_normal((seeds, P)), T, axis=1)
            values += self.by_triplet * np.tile(generator.standard_normal((seeds, T)), P)
            if self.by_cir:
                values += self.by_cir * _by_objective({"/cir": 1.0}, 0.0) * generator.standard_normal((seeds, 1))
            images = None
            if self.images:
                scores = _sampled(generator, seeds, self.images)
                values += scores.mean(axis=2)
                members = np.tile(np.eye(P * T), (seeds, 1))
                images = covariance(scores.reshape(-1, scores.shape[2]), members, np.repeat(np.arange(seeds), P * T))
            if self.step:
                values = np.round(values / self.step) * self.step
            gone = generator.random((seeds, P * T)) < self.missing
            gone[generator.integers(seeds, size=P * T), np.arange(P * T)] = False
            values[gone] = np.nan
            values[2:, [f"{pair}/{triplet}" == self.two_runs for pair, triplet in OBJECTIVES]] = np.nan
            yield values, images

    def comparisons(self, seeds: int, number: int, start: int = 11) -> Iterator[Comparison]:
        """What a report says of such grids."""
        generator = np.random.default_rng(start + 100)
        for values, images in self.grids(seeds, number, start):
            noise = {} if images is None else {"test images": pd.DataFrame(images, COLUMNS, COLUMNS)}
            if self.search:
                chosen, luck = _searched(generator, _by_objective(self.search, 0.0))
                noise, values = noise | {"searches": luck}, values + chosen
            yield compare(pd.DataFrame(values, columns=COLUMNS), noise)


@cache
def _difficulty() -> tuple[Array, Array]:
    """What an image does to each objective of the quickstart (15, N), and to single runs of it (3, 15, N)."""
    with np.load(Path(__file__).with_name("quickstart_hits.npz"), allow_pickle=False) as saved:
        hits = 100.0 * np.unpackbits(saved["i2t"], axis=2)
    means = hits.mean(axis=0)
    return means - means.mean(axis=1, keepdims=True), (hits - means) * 1.5**0.5


def _sampled(generator: np.random.Generator, seeds: int, scale: float) -> Array:
    """Scores (seeds, 15, N) of a sample of images, of objectives that are equal over all images."""
    of_objectives, of_runs = _difficulty()
    num, runs = of_objectives.shape[1], len(of_runs)
    chosen = generator.integers(num, size=num)
    which = generator.integers(runs, size=(seeds, P * T, num))
    own = of_runs[which, np.arange(P * T)[:, None], chosen]
    scores: Array = scale * of_objectives[:, chosen] + own
    return scores


def _qualities(generator: np.random.Generator, searches: int) -> tuple[Array, Array]:
    """What candidates of random settings lose (searches, 16), and their scores, with the noise of one seed.

    Four settings matter equally; a strength of 5 gives a luck of about one standard deviation of a run.
    """
    quality = -4 * ((generator.random((searches, TUNE.budget, 4)) - 0.4) ** 2).sum(axis=2)
    return quality, generator.standard_normal(quality.shape)


@cache
def _expected(strength: float) -> float:
    """The mean quality of the candidate that a search chooses."""
    quality, noise = _qualities(np.random.default_rng(3), 20_000)
    best = (strength * quality + noise).argmax(axis=1)
    return float(strength * quality[np.arange(len(quality)), best].mean())


def _searched(generator: np.random.Generator, strengths: Array) -> tuple[Array, pd.DataFrame]:
    """The chosen candidates beside what a search finds on average (15,), and the luck as a report finds it."""
    quality, noise = _qualities(generator, P * T)
    quality *= strengths[:, None]
    scores = quality + noise
    candidates = pd.DataFrame([{**_PLACE, "pair": p, "triplet": t, "candidate": n, "seed": TUNE.seeds[0]}
        for p, t in OBJECTIVES for n in range(TUNE.budget)])  # fmt: skip
    candidates = candidates.assign(**{metric.val: scores.ravel() for metric in METRICS.values()})
    trails = [
        Trail(
            backbone="b", pair=pair, triplet=triplet, names=tuple(_HEADER.dimensions), is_over=True,
            candidates=tuple(Candidate(number=n, values={}, score=score) for n, score in enumerate(map(float, own))),
        )
        for (pair, triplet), own in zip(OBJECTIVES, scores, strict=True)
    ]  # fmt: skip
    results = SweepResults(
        header=replace(_HEADER, trails=tuple(trails)), runs=candidates[:0], candidates=candidates, table=pa.table({})
    )
    luck = luck_of_search(
        results, BlockKey(**_PLACE, dataset="", framework="", variant="", data_fingerprint="", grid=TUNED)
    )
    assert luck is not None
    chosen = quality[np.arange(P * T), scores.argmax(axis=1)] - [_expected(strength) for strength in strengths]
    return chosen, luck["rsum"]


def _by_objective(values: Mapping[str, float], default: float) -> Array:
    """By its own name, its row's or its column's."""
    found = []
    for pair, triplet in OBJECTIVES:
        names = (f"{pair}/{triplet}", f"{pair}/", f"/{triplet}")
        found.append(next((values[name] for name in names if name in values), default))
    return np.array(found)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Percent of simulated grids."""

    false: float
    """With any false statement on two objectives: told apart though they are equal, or in the wrong order."""
    covered: float
    """In which all intervals contain the truth."""
    found: float
    """Percent of the objectives truly below the highest that are told apart from the one with the highest mean; those
    of spread 1 count."""


def rates(scenario: Scenario, seeds: int, number: int) -> Rates:
    """How often the rule errs."""
    truth = dict(zip(OBJECTIVES, scenario.truth, strict=True))
    calm = {name for name, spread in zip(OBJECTIVES, _by_objective(scenario.spreads, 1.0), strict=True) if spread == 1}
    worse = [name for name in calm if truth[name] < max(truth.values())]
    false, covered, found = 0, 0, 0.0
    for comparison in scenario.comparisons(seeds, number):
        is_false, is_covered, best = False, True, comparison.best
        assert best is not None
        for (one, other), change in comparison.differences.items():
            true = truth[one] - truth[other]
            is_false |= change.verdict == "better" and true <= 0
            is_covered &= change.low is None or change.high is None or change.low <= true <= change.high
        false, covered = false + is_false, covered + is_covered
        apart = [name != best and comparison.differences[best, name].verdict == "better" for name in worse]
        found += sum(apart) / max(len(worse), 1)
    return Rates(false=100 * false / number, covered=100 * covered / number, found=100 * found / number)


def effect_rates(scenario: Scenario, seeds: int, number: int) -> dict[str, float]:
    """How often each effect is said to matter, in percent."""
    found = [p_values(values.reshape(seeds, P, T), images) for values, images in scenario.grids(seeds, number)]
    return {name: 100 * sum(p[name] < 0.05 for p in found) / number for name in EFFECTS}


def false_fates(default: Scenario, tuned: Scenario, seeds: int, number: int) -> dict[str, float]:
    """How often any pair is falsely said to be confirmed or reversed by tuning, in percent.

    Confirmed is false where the pair is not in this order in both; reversed where it is not in opposite orders.
    """
    before, after = (dict(zip(OBJECTIVES, side.truth, strict=True)) for side in (default, tuned))
    wrong = {"confirmed": 0, "reversed": 0}
    for one, other in zip(default.comparisons(seeds, number), tuned.comparisons(seeds, number, start=12), strict=True):
        told = fates(one, other)
        true = dict.fromkeys(wrong, 0)
        said = dict.fromkeys(wrong, 0)
        for (a, b), change in one.differences.items():
            if change.verdict == "better":
                fate = {"better": "confirmed", "worse": "reversed"}.get(other.differences[a, b].verdict)
                if fate:
                    sign = 1 if fate == "confirmed" else -1
                    true[fate] += before[a] > before[b] and sign * (after[a] - after[b]) > 0
                    said[fate] += 1
        assert {fate: told[fate] for fate in said} == said
        for fate in wrong:
            wrong[fate] += said[fate] > true[fate]
    return {fate: 100 * count / number for fate, count in wrong.items()}


def false_gains(default: Scenario, tuned: Scenario, seeds: int, number: int) -> float:
    """How often any objective is said to gain or lose by tuning that does neither, in percent."""
    wrong = 0
    labels = [(grid, *name) for grid in (DEFAULT, TUNED) for name in OBJECTIVES]
    contrasts = np.hstack([-np.eye(P * T), np.eye(P * T)])
    pairs = zip(default.grids(seeds, number), tuned.grids(seeds, number, start=12), strict=True)
    for (before, _), (after, _) in pairs:
        judged = judge(np.hstack([before, after]), contrasts, labels)
        assert judged is not None
        wrong += bool(((judged.p < ALPHA) & (tuned.truth == default.truth)).any())
    return 100 * wrong / number


def false_beside_the_paper(scenario: Scenario, seeds: int, number: int, paper: Scenario | None = None) -> float:
    """How often any cell is said to be higher or lower than its printed number of three runs, in percent."""
    wrong = 0
    pairs = zip(scenario.grids(seeds, number), (paper or scenario).grids(3, number, start=12), strict=True)
    for (ours, _), (theirs, _) in pairs:
        sides = [_cells(ours), _cells(np.round(theirs, 1))]
        cells = compare_cells({name: (sides[1][name], sides[0][name]) for name in OBJECTIVES}).values()
        wrong += any(verdict_of(cell) in ("higher", "lower") for cell in cells)
    return 100 * wrong / number


def _cells(values: Array) -> dict[tuple[str, str], CellSummary]:
    columns = zip(OBJECTIVES, values.T, strict=True)
    return {name: CellSummary(mean=float(own.mean()), std=float(own.std(ddof=1)), n=len(own)) for name, own in columns}
