"""What a report is made of: blocks, their grids and cells, as plain values, and their wording."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields

from analysis.run_schema import METRICS, Metric

_NAMES = {
    "coco": "MS-COCO",
    "f30k": "Flickr30K",
    "vsepp": "VSE++",
    "vse_infty": "VSE∞",
    "xvlm": "X-VLM",
}
Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
OF_EACH = "of each objective"
"""In place of a variant: in this grid it is one of the settings that were chosen for each objective."""
ALPHA = 0.05
"""The largest probability of a false statement among equal objectives."""
NEAR = "≈"
"""Follows a number within noise of the best."""
_BEST = "Bold: best; underlined: second"
_NOISE = f"{NEAR}: within noise of the best (at 5 %, cells' noise pooled, corrected for all comparisons of the grid)"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """Identifies a block. Runs with different keys are never averaged."""

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
    def title(self) -> str:
        """The block's name for a reader."""
        names = [name_text(name) for name in (self.dataset, self.framework)]
        shown = "variant" in point_values(self.point) or self.variant == OF_EACH
        variant = "" if self.variant == "paper" or shown else f", variant {self.variant}"
        point = f", {self.point}" if self.point else ""
        grid = f", {self.grid} grid" if self.grid else ""
        return f"{names[0]}, {names[1]} ({self.backbone}), stage {self.stage}{variant}{point}{grid}"

    @property
    def slug(self) -> str:
        """The block's name in file names, without its fingerprint."""
        values = point_values(self.point)
        variant = () if self.variant in ("paper", OF_EACH) or "variant" in values else (self.variant,)
        point = (f"{name}_{value}" for name, value in values.items())
        grid = (self.grid,) if self.grid else ()
        return file_stem(self.dataset, self.framework, self.backbone, self.stage, *variant, *point, *grid)

    @property
    def paper_backbone(self) -> str:
        """The backbone under its name in the paper's tables; its own name if the paper does not use it.

        The tag of the weights is removed from a timm name, and the image size from the name of the vision transformer.
        The paper calls VSE-infinity's regions `butd` and its grid features `wsl`.
        """
        if self.framework == "vse_infty" and self.backbone.startswith("butd"):
            return "butd"
        if self.framework == "vse_infty" and self.backbone.startswith("resnext101_32x8d.fb_wsl"):
            return "wsl"
        return self.backbone.split(".")[0].replace("vit_base_patch16_224", "vit_base_patch16")


BLOCK_COLUMNS: tuple[str, ...] = tuple(
    column.name for column in fields(BlockKey) if column.name not in ("point", "grid")
)
"""The columns of a frame that identify the block of each row, but for point and grid: a run may be in several."""
MODEL_COLUMNS: tuple[str, ...] = tuple(name for name in BLOCK_COLUMNS if name != "stage")
"""The block columns that all stages of a model share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A seed of a cell that the sweep requests and that has no result."""

    seed: int
    status: str
    """``failed``, ``running``, ``waiting``, ``unusable`` (done without finite numbers) or ``absent``."""
    reason: str
    """Why the result is missing, if known; may be empty."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference of two objectives of a block, in points."""

    estimate: float
    low: float | None
    """Lower end of the simultaneous 95 % interval; None, like ``high`` and ``p``, without a spread to judge by.

    An end is 0 where the interval alone includes 0, but objectives whose means lie closer together are told apart.
    """
    high: float | None
    p: float | None
    """Corrected for all comparisons of the block."""

    @property
    def told_apart(self) -> bool:
        """Whether the two differ by more than noise."""
        return self.p is not None and self.p < ALPHA


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One metric of a block: a cell for each pair and triplet weight."""

    metric: Metric
    cells: Mapping[tuple[str, str], CellSummary]
    """By ``(pair, triplet)``, row by row; every row has the same columns."""
    near: frozenset[tuple[str, str]] = frozenset()
    """Cells within noise of the cell with the highest mean, by `analysis.statistics.compare`."""
    without_interval: frozenset[tuple[str, str]] = frozenset()
    """Cells without an interval of the difference, because they or the cell with the highest mean have one seed."""
    from_baseline: Mapping[Objective, Difference] = field(default_factory=dict)
    """Each objective with a value minus con/con, under the same rule; empty where con/con has no value."""
    beside: tuple[float, ...] = ()
    """Means of another grid on the same colour scale."""
    median_midpoint: bool = False
    """Whether the median has half the full colour, as in some published tables; otherwise the scale is linear."""

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pair weights: rows, in order."""
        return tuple(dict.fromkeys(pair for pair, _ in self.cells))

    @property
    def triplets(self) -> tuple[str, ...]:
        """The triplet weights: columns, in order."""
        return tuple(dict.fromkeys(triplet for _, triplet in self.cells))

    @property
    def means(self) -> dict[tuple[str, str], float]:
        """The means of all cells that have one, row by row."""
        return {key: cell.mean for key, cell in self.cells.items() if cell.mean is not None}

    @property
    def highest(self) -> Objective | None:
        """The cell with the highest mean, the first of several; None without a mean."""
        return max(self.means, key=self.means.__getitem__, default=None)

    @property
    def gain(self) -> Difference | None:
        """The highest mean minus con/con; None where con/con has no value or is the highest."""
        return None if self.highest is None else self.from_baseline.get(self.highest)

    @property
    def marked(self) -> frozenset[Objective]:
        """The cells that carry the mark of `near`: bold ones, which share the highest mean as printed, need none."""
        return self.near - self.best()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a report, with the text that must accompany its numbers."""

    key: BlockKey
    slug: str
    """The stem of its file names, unique in its report."""
    protocol: str
    """The seeds, the selection and the source of the numbers, in sentences."""
    grids: Mapping[str, Grid]
    """By the metric's key."""
    brief: str = "mean ± std of seeds"
    """The most important of the protocol, for the caption of a printed table."""

    @property
    def gaps(self) -> list[tuple[str, Gap]]:
        """``(objective, gap)`` for every missing result (the same for all metrics)."""
        grid = next(iter(self.grids.values()))
        return [(f"{pair}/{triplet}", gap) for (pair, triplet), cell in grid.cells.items() for gap in cell.gaps]

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
        if not any(grid.without_interval for grid in grids):
            return f"{_BEST}; {_NOISE}."
        if all(len(grid.without_interval) == len(grid.means) - 1 for grid in grids):
            return f"{_BEST}. With one seed there is no interval, so no cell is marked as within noise of the best."
        return f"{_BEST}; {_NOISE}. Cells with one seed have no interval and no mark."


def point_values(point: str) -> dict[str, str]:
    """The values of a point by the names of their axes."""
    words = point.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def name_text(name: str) -> str:
    """A dataset or framework as papers print it: ``MS-COCO`` for ``coco``; other names unchanged."""
    return _NAMES.get(name, name)


def file_stem(*words: str) -> str:
    """Words as the stem of a file name and as a LaTeX label; a digest tells names in other scripts apart."""
    text = "-".join(words)
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", text)
    return stem if text.isascii() else f"{stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def change_text(points: float) -> str:
    """A difference as printed, never with a negative zero: ``+0.4``, ``-1.2`` or ``+0.0``."""
    return f"{points:+z.1f}"


def mean_text(mean: float, std: float | None, sign: str = "±", *, always_std: bool = True) -> str:
    """A mean as printed: ``35.6 ± 0.1``.

    Without a standard deviation (None or NaN) it is ``35.6 ± --``, or ``35.6`` when ``always_std`` is off.
    """
    if std is not None and std == std:
        return f"{mean:.1f} {sign} {std:.1f}"
    return f"{mean:.1f} {sign} --" if always_std else f"{mean:.1f}"


def p_text(p: float) -> str:
    """A p-value as printed: ``0.012``, or ``< 0.001``, below which the simulations say no more.

    A fourth digit shows on which side of 0.05 it lies.
    """
    if p < 0.001:
        return "< 0.001"
    text = f"{p:.3f}"
    return f"{p:.4f}" if text == "0.050" else text


def p_equation(p: float) -> str:
    """``p = 0.012`` or ``p < 0.001``."""
    text = p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def number_text(cell: CellSummary, sign: str = "±", *, with_n: bool = True) -> str:
    """A cell as printed: ``35.6 ± 0.1``, ``35.6 ± 0.1 (n=2)`` when seeds are missing, ``--`` when empty."""
    if cell.mean is None:
        return "--"
    n = f" (n={cell.n})" if cell.gaps and with_n else ""
    return f"{mean_text(cell.mean, cell.std, sign)}{n}"


def gap_text(cell: CellSummary) -> str:
    """What is missing in a cell, by status: ``failed: seed 1; absent: seeds 2, 3``."""
    by_status: dict[str, list[int]] = {}
    for gap in cell.gaps:
        by_status.setdefault(gap.status, []).append(gap.seed)
    return "; ".join(f"{status}: {seeds_text(seeds)}" for status, seeds in by_status.items())


def seeds_text(seeds: Collection[object]) -> str:
    """``seed 1`` or ``seeds 2, 3``."""
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}"


def count_text(number: int, noun: str) -> str:
    """``1 seed`` or ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def list_text(names: Sequence[str]) -> str:
    """At most five names, and the number of the others: ``a, b, c, d, e and 3 more``."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}"
