"""What a report is made of: blocks, their grids and cells, and the verdicts on them, as plain values.

Every mark, sentence, file and figure that says whether objectives differ asks the `Comparison` of a grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal

from goal_sweep.analysis.wording import and_text, file_stem, mean_text, name_text, point_values, seeds_text, signed
from goal_sweep.sweeps.results import BASELINE, LOSS, METRICS, Metric

Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
Verdict = Literal["better", "worse", "level", "unknown"]
OF_EACH = "of each objective"
"""In place of a variant: in this grid it is one of the settings that were chosen for each objective."""
ALPHA = 0.05
"""The largest probability of a false statement among equal objectives."""
NEAR = "≈"
"""Follows a number within noise of the best."""
_BEST = "Bold: highest; underlined: second"
_NOISE = f"{NEAR}: within noise of the highest (at 5 %, for other {{}}, corrected for all comparisons of the grid)"


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
    point: str = ""
    """The values of the sweep's axes, such as ``tau 5 lr 0.0002``; empty without axes."""
    grid: str = ""
    """``default`` or ``tuned``, of a tuned sweep; empty for others."""

    @property
    def own_variant(self) -> str:
        """The variant where it is neither the usual one nor said elsewhere in the key; else empty."""
        is_said = self.variant in ("paper", OF_EACH) or "variant" in point_values(self.point)
        return "" if is_said else self.variant

    @property
    def title(self) -> str:
        """The block's name for a reader."""
        variant = f", variant {self.own_variant}" if self.own_variant else ""
        point = f", {self.point}" if self.point else ""
        grid = f", {self.grid} grid" if self.grid else ""
        return f"{self.model_title}, stage {self.stage}{variant}{point}{grid}"

    @property
    def model_title(self) -> str:
        """Dataset, framework and backbone for a reader."""
        return f"{name_text(self.dataset)}, {name_text(self.framework)} ({self.backbone})"

    @property
    def slug(self) -> str:
        """The block's name in file names, without its fingerprint."""
        point = (f"{name}_{value}" for name, value in point_values(self.point).items())
        words = (self.dataset, self.framework, self.backbone, self.stage, self.own_variant, *point, self.grid)
        return file_stem(*filter(None, words))


BLOCK_COLUMNS = tuple(column.name for column in fields(BlockKey) if column.name not in ("point", "grid"))
"""The columns that identify the block of a training, but for point and grid: a training may be in several."""
MODEL_COLUMNS = tuple(name for name in BLOCK_COLUMNS if name != "stage")
"""The block columns that all stages of a model share."""


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
    """The difference of two objectives of a block, or of one objective in two grids, in points."""

    estimate: float
    low: float | None
    """Lower end of the simultaneous 95 % interval for new seeds and, where the ranks are known, new test images; None,
    like ``high`` and ``p``, without a spread to judge by."""
    high: float | None
    p: float | None
    """Corrected for all comparisons of the block."""
    of_seeds: float | None = None
    """Half the width of the simultaneous 95 % interval for new seeds on these test images; None without a spread."""

    @property
    def told_apart(self) -> bool:
        """Whether the two differ by more than noise."""
        return self.p is not None and self.p < ALPHA

    @property
    def verdict(self) -> Verdict:
        """What is known about its sign."""
        if self.p is None:
            return "unknown"
        if not self.told_apart:
            return "level"
        return "better" if self.estimate > 0 else "worse"

    @property
    def text(self) -> str:
        """As printed: ``+1.7 (+0.3 to +3.1)``, or ``+1.7 (no interval)``."""
        low, high = map(signed, self.ends)
        return f"{signed(self.estimate)} ({'no interval' if self.p is None else f'{low} to {high}'})"

    @property
    def turned(self) -> Difference:
        """The second minus the first."""
        low, high = (None if end is None else -end for end in (self.high, self.low))
        return replace(self, estimate=-self.estimate, low=low, high=high)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval; twice the estimate without one."""
        if self.low is None or self.high is None:
            return self.estimate, self.estimate
        return self.low, self.high

    @property
    def seed_ends(self) -> tuple[float, float]:
        """The ends of the interval for new seeds on these test images; `ends` where it is not known apart."""
        if self.of_seeds is None:
            return self.ends
        return self.estimate - self.of_seeds, self.estimate + self.of_seeds


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The objectives of a block compared by one metric."""

    best: Objective | None = None
    """The objective with the highest mean; None without values."""
    differences: Mapping[tuple[Objective, Objective], Difference] = field(default_factory=dict, repr=False)
    """First minus second, for each two objectives in either order."""
    beyond_seeds: tuple[str, ...] = ()
    """What intervals and verdicts are for beside new seeds: new ``test images``, new ``searches``."""

    @cached_property
    def level(self) -> frozenset[Objective]:
        """The objectives that cannot be told apart from the best, without the best itself."""
        return self._with("level")

    @cached_property
    def unjudged(self) -> frozenset[Objective]:
        """Those whose difference from the best has no interval, for lack of runs or because seeds agree exactly."""
        return self._with("unknown")

    @cached_property
    def from_baseline(self) -> dict[Objective, Difference]:
        """Each objective minus con/con; empty where con/con has no value."""
        return {name: change for (name, other), change in self.differences.items() if other == BASELINE}

    def _with(self, verdict: Verdict) -> frozenset[Objective]:
        against = ((other, change) for (name, other), change in self.differences.items() if name == self.best)
        return frozenset(other for other, change in against if change.verdict == verdict)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One metric of a block: a cell for each pair and triplet weight."""

    metric: Metric
    cells: Mapping[Objective, CellSummary]
    """By ``(pair, triplet)``, row by row; every row has the same columns."""
    comparison: Comparison = Comparison()
    beside: tuple[float, ...] = ()
    """Means of another grid on the same colour scale."""

    @cached_property
    def pairs(self) -> tuple[str, ...]:
        """The pair weights: rows, in order."""
        return self._weights(0)

    @cached_property
    def triplets(self) -> tuple[str, ...]:
        """The triplet weights: columns, in order."""
        return self._weights(1)

    @cached_property
    def rows(self) -> tuple[tuple[str, str, tuple[Objective, ...]], ...]:
        """The rows as printed: ``P``, a pair weight, and a cell for each triplet weight; then the baselines.

        A baseline beside the grid has no letter, its name, and one cell as wide as the table.
        """
        grid = [("P", pair, tuple((pair, triplet) for triplet in self.triplets)) for pair in self.pairs]
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
        return self.comparison.level - self.best()

    def best(self) -> frozenset[Objective]:
        """The cells with the highest mean as printed, to one decimal."""
        return self._ranked(0)

    def second(self) -> frozenset[Objective]:
        """The cells with the second highest mean as printed."""
        return self._ranked(1)

    def _weights(self, part: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key[part] for key, cell in self.cells.items() if key[1] != LOSS and cell.requested))

    def _ranked(self, rank: int) -> frozenset[Objective]:
        printed = {key: float(f"{mean:.1f}") for key, mean in self.means.items()}
        values = sorted(set(printed.values()), reverse=True)
        return frozenset(key for key, value in printed.items() if value in values[rank : rank + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a report, with the text that must accompany its numbers."""

    key: BlockKey
    protocol: str
    """The seeds, the selection and the source of the numbers, in sentences."""
    grids: Mapping[str, Grid]
    """By the metric's key."""
    brief: str = "mean ± std of seeds"
    """The most important of the protocol, for the caption of a printed table."""

    @property
    def slug(self) -> str:
        """The stem of its file names, unique in its report."""
        return self.key.slug

    @property
    def cells(self) -> Mapping[Objective, CellSummary]:
        """The cells of any metric, for what is the same in all: seeds, gaps, whether they are requested."""
        return next(iter(self.grids.values())).cells

    @property
    def gaps(self) -> list[tuple[str, Gap]]:
        """``(objective, gap)`` for every missing result."""
        return [("/".join(objective), gap) for objective, cell in self.cells.items() for gap in cell.gaps]

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
        """The meaning of the marks; a cell without an interval is never marked as within noise."""
        grids = self.grids_of(measure)
        beyond = dict.fromkeys(what for grid in grids for what in grid.comparison.beyond_seeds)
        noise = _NOISE.format(and_text(("seeds", *beyond)))
        if not any(grid.comparison.unjudged for grid in grids):
            return f"{_BEST}; {noise}."
        if all(len(grid.comparison.unjudged) == len(grid.means) - 1 for grid in grids):
            return f"{_BEST}. The highest has no interval, so no cell is marked as within noise of it."
        return f"{_BEST}; {noise}. Cells without an interval, such as those with one seed, have no mark."
