"""What a report is made of: blocks, their grids and cells, as plain values, and how they are put into words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from analysis.run_schema import METRICS, Metric

_NAMES = {
    "coco": "MS-COCO",
    "f30k": "Flickr30K",
    "vsepp": "VSE++",
    "vse_infty": "VSE∞",
    "xvlm": "X-VLM",
}
NEAR = "≈"
"""Stands behind a number that is within noise of the best."""
_BEST = "Bold: best; underlined: second"
_NOISE = (
    f"{NEAR}: within noise of the best (the 95 % interval of the difference holds 0, uncorrected for the number of "
    "comparisons)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """Identifies a block. Runs of different keys are never averaged."""

    dataset: str
    framework: str
    backbone: str
    stage: str
    variant: str
    data_fingerprint: str
    """Hex; empty when the source of the numbers does not state it."""

    @property
    def title(self) -> str:
        """The block's name for a reader."""
        names = [_NAMES.get(name, name) for name in (self.dataset, self.framework)]
        variant = "" if self.variant == "paper" else f", variant {self.variant}"
        return f"{names[0]}, {names[1]} ({self.backbone}), stage {self.stage}{variant}"

    @property
    def slug(self) -> str:
        """The block's name for a file, without its fingerprint."""
        variant = () if self.variant == "paper" else (self.variant,)
        words = "-".join((self.dataset, self.framework, self.backbone, self.stage, *variant))
        return re.sub(r"[^A-Za-z0-9_.-]+", "_", words)


BLOCK_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(BlockKey))
"""The columns that identify the block of a frame's row."""
MODEL_COLUMNS: tuple[str, ...] = tuple(name for name in BLOCK_COLUMNS if name != "stage")
"""Those of them that all stages of a model share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A seed of a cell that was asked for and has no result."""

    seed: int
    status: str
    """``failed``, ``running``, ``waiting``, ``unusable`` (done without finite numbers) or ``absent``."""
    reason: str
    """Why, as far as is known; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """One cell of a grid."""

    mean: float | None
    """None when nothing is finished."""
    std: float | None
    """Sample standard deviation (ddof=1); None below two values."""
    n: int
    """Number of seeds behind the mean."""
    gaps: tuple[Gap, ...] = ()
    asked: bool = True
    """False when the sweep leaves this objective out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """One metric of a block: a cell for each pair and triplet weight."""

    metric: Metric
    cells: Mapping[tuple[str, str], CellSummary]
    """By ``(pair, triplet)``, row by row; every row has the same columns."""
    near: frozenset[tuple[str, str]] = frozenset()
    """Cells within noise of the cell with the highest mean."""
    unjudged: frozenset[tuple[str, str]] = frozenset()
    """Cells that share fewer than two seeds with the cell of the highest mean, so that no interval exists."""
    median_midpoint: bool = False
    """Whether the median has half the full colour, as in some published tables; otherwise colours are linear."""

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
        """The means that exist, row by row."""
        return {key: cell.mean for key, cell in self.cells.items() if cell.mean is not None}

    def best(self) -> set[tuple[str, str]]:
        """The cells whose mean is highest as printed, to one decimal."""
        return self._ranked(0)

    def second(self) -> set[tuple[str, str]]:
        """The cells whose mean is second highest as printed."""
        return self._ranked(1)

    def _ranked(self, rank: int) -> set[tuple[str, str]]:
        printed = {key: float(f"{mean:.1f}") for key, mean in self.means.items()}
        values = sorted(set(printed.values()), reverse=True)
        return {key for key, value in printed.items() if value in values[rank : rank + 1]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a report, with what must be said beside its numbers."""

    key: BlockKey
    slug: str
    """File name stem, unique in its report."""
    protocol: str
    """Seeds, selection and source of the numbers, in sentences."""
    grids: Mapping[str, Grid]
    """By the metric's key."""

    @property
    def gaps(self) -> list[tuple[str, Gap]]:
        """``(objective, gap)`` for every number that is asked for and missing (the same for all metrics)."""
        grid = next(iter(self.grids.values()))
        return [(f"{pair}/{triplet}", gap) for (pair, triplet), cell in grid.cells.items() for gap in cell.gaps]

    @property
    def is_empty(self) -> bool:
        """Whether no cell has a number."""
        return not any(grid.means for grid in self.grids.values())

    def halves(self, measure: str) -> list[Grid]:
        """The grids that stand side by side in a table: one for each direction, or a single one for ``rsum``."""
        keys = [key for key, metric in METRICS.items() if metric.name == measure]
        return [self.grids[key] for key in keys if key in self.grids]

    def caption(self, measure: str) -> str:
        """What must stand beside the numbers: measure, block, seeds, selection, test split, data and marks."""
        unit = "sum of the six recalls in %, 0 to 600" if measure == "rsum" else "%"
        return f"{measure} ({unit}). {self.key.title}. {self.protocol} {self._marks(measure)}"

    def _marks(self, measure: str) -> str:
        """The meaning of the marks; no cell is marked as within noise where there is no interval."""
        grids = self.halves(measure)
        if not any(grid.unjudged for grid in grids):
            return f"{_BEST}; {_NOISE}."
        if all(len(grid.unjudged) == len(grid.means) - 1 for grid in grids):
            return f"{_BEST}. With one seed no interval exists, so no cell is marked as within noise of the best."
        return f"{_BEST}; {_NOISE}. Cells that share fewer than two seeds with the best have no interval and no mark."


def mean_text(mean: float, std: float | None, sign: str = "±") -> str:
    """A mean as it is printed: ``35.6 ± 0.1``, or ``35.6 ± --`` without a standard deviation (None or NaN)."""
    return f"{mean:.1f} {sign} {'--' if std is None or std != std else f'{std:.1f}'}"


def number_text(cell: CellSummary, sign: str = "±", *, with_n: bool = True) -> str:
    """A cell as it is printed: ``35.6 ± 0.1``, ``35.6 ± 0.1 (n=2)`` when seeds are missing, ``--`` when empty."""
    if cell.mean is None:
        return "--"
    n = f" (n={cell.n})" if cell.gaps and with_n else ""
    return f"{mean_text(cell.mean, cell.std, sign)}{n}"


def gap_text(cell: CellSummary) -> str:
    """What is missing in a cell, by status: ``failed: seed 1; absent: seeds 2, 3``."""
    by_status: dict[str, list[int]] = {}
    for gap in cell.gaps:
        by_status.setdefault(gap.status, []).append(gap.seed)
    return "; ".join(
        f"{status}: seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        for status, seeds in by_status.items()
    )
