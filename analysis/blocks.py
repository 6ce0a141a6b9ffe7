"""What a report is made of, as plain values: the results of blocks, their grids and cells, and the verdicts on them.

Every mark, sentence, file and figure that says whether objectives differ asks the `Comparison` of a grid.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import isnan, nan
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goal_sweep.analysis.wording import configuration_values, mean_text, name_text, seeds_text, signed
from goal_sweep.goal_core.evaluation.metrics import METRICS, Metric
from goal_sweep.goal_core.objectives.variants import LOSS, objective_name
from goal_sweep.sweeps.results import BASELINE

Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
Name = TypeVar("Name", bound=Hashable)
"""Of an objective, or of a single weight."""
Verdict = Literal["better", "worse", "not significant", "not tested"]
Array = NDArray[np.float64]
OF_EACH = "of each objective"
"""In place of a variant: in this grid it is one of the settings that were chosen for each objective."""
ALPHA = 0.05
"""The level of every test."""
NEAR = "≈"
"""Follows a number that is not significantly below the highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """Identifies a block. Trainings with different keys are never averaged."""

    dataset: str
    framework: str
    backbone: str
    stage: str
    variant: str
    data_fingerprint: str
    """Hexadecimal; empty when the source of the numbers does not state it."""
    configuration: str = ""
    """The values of the sweep's axes, such as ``tau 5 lr 0.0002``; empty without axes."""
    grid: str = ""
    """``default`` or ``tuned``, of a tuned sweep; empty for others."""

    @property
    def own_variant(self) -> str:
        """The variant where it is neither the usual one nor said elsewhere in the key; else empty."""
        is_said = self.variant in ("paper", OF_EACH) or "variant" in configuration_values(self.configuration)
        return "" if is_said else self.variant

    @property
    def title(self) -> str:
        """The block's name for a reader."""
        variant = f", variant {self.own_variant}" if self.own_variant else ""
        configuration = f", {self.configuration}" if self.configuration else ""
        grid = f", {self.grid} grid" if self.grid else ""
        return f"{self.model_title}, stage {self.stage}{variant}{configuration}{grid}"

    @property
    def model_title(self) -> str:
        """Dataset, framework and backbone for a reader."""
        return f"{name_text(self.dataset)}, {name_text(self.framework)} ({self.backbone})"

    @property
    def slug(self) -> str:
        """The block's name in file names and labels, without its fingerprint; a digest tells other scripts apart."""
        configuration = (f"{name}_{value}" for name, value in configuration_values(self.configuration).items())
        words = (self.dataset, self.framework, self.backbone, self.stage, self.own_variant, *configuration, self.grid)
        text = "-".join(filter(None, words))
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", text)
        return stem if text.isascii() else f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


BLOCK_COLUMNS = tuple(column.name for column in fields(BlockKey) if column.name not in ("configuration", "grid"))
"""The columns that identify the block of a training, but for configuration and grid: a training may be in several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A seed of a cell that the sweep requests and that has no result."""

    seed: int
    status: str
    """``failed``, ``running``, ``waiting``, ``unusable`` (done without finite numbers) or ``absent`` (not chosen)."""
    reason: str
    """Why the result is missing, if known; may be empty."""

    @property
    def text(self) -> str:
        """For example ``seed 3 failed (loss is NaN)``."""
        return f"seed {self.seed} {self.status}" + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One cell of a grid."""

    mean: float | None
    """None when no seed is finished."""
    std: float | None
    """Sample standard deviation (ddof=1); None with fewer than two seeds."""
    n: int
    """Number of seeds in the mean."""
    gaps: tuple[Gap, ...] = ()
    requested: bool = True
    """False when the sweep does not include this objective."""

    @classmethod
    def of(cls, values: ArrayLike, gaps: tuple[Gap, ...] = (), *, requested: bool = True) -> CellSummary:
        """Summarise the values of some seeds."""
        own = np.asarray(values, float)
        mean, std = (float(own.mean()) if len(own) else None, float(own.std(ddof=1)) if len(own) > 1 else None)
        return cls(mean=mean, std=std, n=len(own), gaps=gaps, requested=requested)

    def text(self, sign: str = "±", *, with_n: bool = True) -> str:
        """As printed: ``35.6 ± 0.1``, ``35.6 ± 0.1 (n=2)`` when seeds are missing, ``--`` when empty."""
        if self.mean is None:
            return "--"
        n = f" (n={self.n})" if self.gaps and with_n else ""
        return f"{mean_text(self.mean, self.std, sign)}{n}"

    @property
    def gap_text(self) -> str:
        """What is missing, by status: ``failed: seed 1; waiting: seeds 2, 3``."""
        statuses = dict.fromkeys(gap.status for gap in self.gaps)
        seeds = {status: [gap.seed for gap in self.gaps if gap.status == status] for status in statuses}
        return "; ".join(f"{status}: {seeds_text(own)}" for status, own in seeds.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first minus the second, in points."""

    estimate: float
    reach: float = nan
    """Half the width of the simultaneous 95 % interval, for new seeds and, where ranks are known, new test images; NaN,
    like ``p``, where the difference cannot be tested."""
    p: float = nan
    """Corrected for all pairs of the grid."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""
        return self.estimate - self.reach

    @property
    def high(self) -> float:
        """Upper end of the interval."""
        return self.estimate + self.reach

    @property
    def verdict(self) -> Verdict:
        """What is known about its sign."""
        if isnan(self.reach):
            return "not tested"
        if abs(self.estimate) <= self.reach:
            return "not significant"
        return "better" if self.estimate > 0 else "worse"

    @property
    def text(self) -> str:
        """As printed: ``+1.7 (+0.3 to +3.1)``, or ``+1.7 (no interval)``."""
        interval = "no interval" if isnan(self.reach) else f"{signed(self.low)} to {signed(self.high)}"
        return f"{signed(self.estimate)} ({interval})"


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison(Generic[Name]):
    """The objectives of a grid, or the levels of a weight, compared in pairs by one metric."""

    names: Sequence[Name] = ()
    """Those with a value."""
    best: Name | None = None
    """That with the highest mean; None without values."""
    estimates: Array = field(default_factory=lambda: np.empty((0, 0)))
    """First minus second in points, shape (K, K); likewise the next two, NaN where a pair is not tested."""
    reach: Array = field(default_factory=lambda: np.empty((0, 0)))
    p: Array = field(default_factory=lambda: np.empty((0, 0)))
    with_images: bool = False
    """Whether intervals are for new test images too."""
    spreads: Array = field(default_factory=lambda: np.empty(0))
    """The variance of a run of each objective, and its number of runs; shape (K)."""
    counts: Array = field(default_factory=lambda: np.empty(0))
    of_images: Array = field(default_factory=lambda: np.empty((0, 0)))
    """The variance of each difference over test images, shape (K, K)."""
    df: int = 0
    """Degrees of freedom of the pooled variance."""

    @cached_property
    def differences(self) -> dict[tuple[Name, Name], Difference]:
        """First minus second, for each two in either order."""
        numbers = np.stack([self.estimates, self.reach, self.p], axis=2).tolist()
        return {
            (one, other): Difference(estimate=estimate, reach=reach, p=p)
            for one, row in zip(self.names, numbers, strict=True)
            for other, (estimate, reach, p) in zip(self.names, row, strict=True)
            if one != other
        }

    @cached_property
    def near(self) -> frozenset[Name]:
        """Those not significantly worse than the best, without the best itself."""
        return self._worse_by("not significant")

    @cached_property
    def untested(self) -> frozenset[Name]:
        """Those whose difference from the best is not tested, for lack of runs or because seeds agree exactly."""
        return self._worse_by("not tested")

    @cached_property
    def from_baseline(self) -> dict[Name, Difference]:
        """Each objective minus con/con; empty where con/con has no value."""
        return {name: change for (name, other), change in self.differences.items() if other == BASELINE}

    @property
    def is_tested(self) -> bool:
        """Whether any difference is tested."""
        return bool((~np.isnan(self.reach)).any())

    @property
    def smallest_p(self) -> float:
        """That of the most significant difference; NaN where none is tested."""
        return float(np.nanmin(self.p)) if self.is_tested else nan

    def _worse_by(self, verdict: Verdict) -> frozenset[Name]:
        changes = self.differences.items()
        return frozenset(other for (one, other), change in changes if one == self.best and change.verdict == verdict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Weights:
    """What each weight does on its own, by one metric: its mean over the other weight within each seed."""

    levels: Mapping[tuple[str, str], CellSummary] = field(default_factory=dict)
    """By ``pair`` or ``triplet``, and the weight."""
    comparisons: Mapping[str, Comparison[Any]] = field(default_factory=dict)
    """``pair``, ``triplet``, and ``interaction``: of what remains of objectives when both are removed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """One metric of a block: a cell for each pair and triplet weight."""

    metric: Metric
    cells: Mapping[Objective, CellSummary]
    """By ``(pair, triplet)``, row by row; every row has the same columns."""
    comparison: Comparison[Objective] = field(default_factory=Comparison)
    weights: Weights = field(default_factory=Weights)
    beside: tuple[float, ...] = ()
    """Means of another grid on the same colour scale."""

    @cached_property
    def triplets(self) -> tuple[str, ...]:
        """The triplet weights: columns, in order."""
        return tuple(dict.fromkeys(key[1] for key, cell in self.cells.items() if key[1] != LOSS and cell.requested))

    @cached_property
    def rows(self) -> tuple[tuple[str, str, tuple[Objective, ...]], ...]:
        """The rows as printed: ``P``, a pair weight, and a cell for each triplet weight; then the baselines.

        A baseline beside the grid has no letter, its name, and one cell as wide as the table.
        """
        pairs = dict.fromkeys(key[0] for key, cell in self.cells.items() if key[1] != LOSS and cell.requested)
        grid = [("P", pair, tuple((pair, triplet) for triplet in self.triplets)) for pair in pairs]
        beside = [key for key, cell in self.cells.items() if key[1] == LOSS and cell.requested]
        return (*grid, *(("", key[0], (key,)) for key in beside))

    @cached_property
    def means(self) -> dict[Objective, float]:
        """The means of all cells that have one, row by row."""
        return {key: cell.mean for key, cell in self.cells.items() if cell.mean is not None}

    @property
    def highest(self) -> Objective | None:
        """The cell with the highest mean, the first of several; None without a mean."""
        return max(self.means, key=self.means.__getitem__, default=None)

    @property
    def gain(self) -> Difference | None:
        """The highest mean minus con/con; None where con/con has no value or is the highest."""
        return None if self.highest is None else self.comparison.differences.get((self.highest, BASELINE))

    @property
    def marked(self) -> frozenset[Objective]:
        """The cells with the mark `NEAR`: bold ones, which share the highest mean as printed, need none."""
        return self.comparison.near - self.best()

    def best(self) -> frozenset[Objective]:
        """The cells with the highest mean as printed, to one decimal."""
        return self._ranked(0)

    def second(self) -> frozenset[Objective]:
        """The cells with the second highest mean as printed."""
        return self._ranked(1)

    def _ranked(self, rank: int) -> frozenset[Objective]:
        printed = {key: float(f"{mean:.1f}") for key, mean in self.means.items()}
        values = sorted(set(printed.values()), reverse=True)
        return frozenset(key for key, value in printed.items() if value in values[rank : rank + 1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockResults:
    """One block of a report, with the text that must accompany its numbers."""

    key: BlockKey
    protocol: str
    """The seeds, the selection and the source of the numbers, in sentences."""
    grids: Mapping[str, Grid]
    """By the metric's key."""
    brief: str = "mean ± std of seeds"
    """The most important of the protocol, for the caption of a printed table."""
    chance: tuple[float, float] = (0.0, 0.0)
    """As of `chance_rsum`; zeros where the ranks are not known."""

    @property
    def cells(self) -> Mapping[Objective, CellSummary]:
        """The cells of any metric, for what is the same in all: seeds, gaps, whether they are requested."""
        return next(iter(self.grids.values())).cells

    @property
    def gaps(self) -> list[tuple[str, Gap]]:
        """``(objective, gap)`` for every missing result."""
        return [(objective_name(*objective), gap) for objective, cell in self.cells.items() for gap in cell.gaps]

    @property
    def is_empty(self) -> bool:
        """Whether no cell has a number."""
        return not any(grid.means for grid in self.grids.values())

    def grids_of(self, measure: str) -> list[Grid]:
        """The grids of a measure: one for each direction, or a single one for ``rsum``."""
        keys = [key for key, metric in METRICS.items() if metric.name == measure]
        return [self.grids[key] for key in keys if key in self.grids]

    def caption(self, measure: str) -> str:
        """The text that must accompany the numbers: measure, block, seeds, selection, test split, data and marks."""
        unit = "sum of the six recalls in %, 0 to 600" if measure == "rsum" else "%"
        return f"{measure} ({unit}). {self.key.title}. {self.protocol} {self._marks(measure)}"

    def _marks(self, measure: str) -> str:
        """The meaning of the marks. A cell that is not tested has none."""
        comparisons = [grid.comparison for grid in self.grids_of(measure)]
        marks = "Bold: highest; underlined: second"
        if not any(own.is_tested for own in comparisons):
            return f"{marks}. Nothing can be tested with these runs."
        images = " and test images" if all(own.with_images for own in comparisons) else ""
        near = f"{NEAR}: not significantly below the highest (Tukey-Kramer, 5 %, for new seeds{images})"
        untested = " Cells that cannot be tested, such as those with one seed, have no mark."
        return f"{marks}; {near}.{untested if any(own.untested for own in comparisons) else ''}"
