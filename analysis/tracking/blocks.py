"""What a report is made of: blocks, their grids, and the cells of a grid. Plain values, no reading and no drawing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_NAMES = {
    "coco": "MS-COCO",
    "f30k": "Flickr30K",
    "vsepp": "VSE++",
    "vse_infty": "VSE∞",
    "xvlm": "X-VLM",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKey:
    """What a block is of. Two runs of different keys are never averaged."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """One seed that a cell was asked for and has no number of."""

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
    """One direction and metric of a block: a cell for each pair and triplet weight."""

    direction: str
    """``i2t``, ``t2i`` or ``both``."""
    metric: str
    """``R@1``, ``R@5``, ``R@10`` or ``rsum``."""
    cells: Mapping[tuple[str, str], CellSummary]
    """By ``(pair, triplet)``, row by row; every row has the same columns."""
    near: frozenset[tuple[str, str]] = frozenset()
    """Cells within noise of the highest mean (:mod:`analysis.statistics.noise`), itself left out."""
    median_midpoint: bool = False
    """Colour with the median at half strength instead of linearly; only some published tables are printed so."""

    @property
    def pairs(self) -> tuple[str, ...]:
        """The pair weights: rows, in order."""
        return tuple(dict.fromkeys(pair for pair, _ in self.cells))

    @property
    def triplets(self) -> tuple[str, ...]:
        """The triplet weights: columns, in order."""
        return tuple(dict.fromkeys(triplet for _, triplet in self.cells))

    @property
    def means(self) -> list[float]:
        """The means that exist, row by row."""
        return [cell.mean for cell in self.cells.values() if cell.mean is not None]

    def best(self) -> set[tuple[str, str]]:
        """The cells whose mean is highest as printed, to one decimal."""
        if not self.means:
            return set()
        return self._printed_as(f"{max(self.means):.1f}")

    def second(self) -> set[tuple[str, str]]:
        """The cells whose mean is second highest as printed."""
        printed = {f"{mean:.1f}" for mean in self.means}
        if len(printed) < 2:
            return set()
        return self._printed_as(sorted(printed, key=float)[-2])

    def _printed_as(self, text: str) -> set[tuple[str, str]]:
        return {key for key, cell in self.cells.items() if cell.mean is not None and f"{cell.mean:.1f}" == text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a report, with what must be said beside its numbers."""

    key: BlockKey
    slug: str
    """File name stem, unique in its report."""
    protocol: str
    """Seeds, selection and source of the numbers, in sentences."""
    grids: Mapping[tuple[str, str], Grid]
    """By ``(direction, metric)``."""

    @property
    def gaps(self) -> list[tuple[str, Gap]]:
        """``(objective, gap)`` for every number that is asked for and missing (the same for all metrics)."""
        grid = next(iter(self.grids.values()))
        return [(f"{pair}/{triplet}", gap) for (pair, triplet), cell in grid.cells.items() for gap in cell.gaps]

    @property
    def is_empty(self) -> bool:
        """Whether no cell has a number."""
        return not any(grid.means for grid in self.grids.values())


def number_text(cell: CellSummary, sign: str = "±") -> str:
    """A cell as it is printed: ``35.6 ± 0.1``, ``35.6 ± 0.1 (n=2)`` when seeds are missing, ``--`` when empty."""
    if cell.mean is None:
        return "--"
    std = "--" if cell.std is None else f"{cell.std:.1f}"
    n = f" (n={cell.n})" if cell.gaps else ""
    return f"{cell.mean:.1f} {sign} {std}{n}"


def gap_text(cell: CellSummary) -> str:
    """What is missing in a cell, by status: ``failed: seed 1; absent: seeds 2, 3``."""
    by_status: dict[str, list[int]] = {}
    for gap in cell.gaps:
        by_status.setdefault(gap.status, []).append(gap.seed)
    return "; ".join(
        f"{status}: seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        for status, seeds in by_status.items()
    )


def direction_title(direction: str) -> str:
    """The words over a half of a table."""
    return {"i2t": "Image → Text", "t2i": "Text → Image"}.get(direction, "Both directions")
