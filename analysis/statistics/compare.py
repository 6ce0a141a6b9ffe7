"""A sweep beside the published numbers: cell by cell, and whether the two order the objectives alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from scipy import stats

from analysis.tracking.blocks import Block, BlockKey, CellSummary, Grid

_NOTHING = CellSummary(mean=None, std=None, n=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellComparison:
    """One cell in both sources."""

    pair: str
    triplet: str
    ours: float
    theirs: float
    ours_std: float | None
    """Over our seeds; None of a single one."""
    theirs_std: float | None
    n: int
    """Seeds behind ``ours``; ``theirs`` are means of 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridComparison:
    """One direction and metric of a block in both sources."""

    block: Block
    direction: str
    metric: str
    cells: tuple[CellComparison, ...]
    """The cells that both have."""
    spearman: float | None
    """Rank correlation of the means over these cells, -1 to 1; None below 3 cells or when one side is constant."""
    kendall: float | None
    """Kendall's tau-b of the same."""
    mean_difference: float
    """Mean of ours minus theirs, in points."""


def compare_blocks(ours: Iterable[Block], theirs: Iterable[Block]) -> tuple[GridComparison, ...]:
    """Compare each block of the `paper` variant with the published one of the same system; see :func:`published_key`.

    Blocks and metrics without a match are left out.
    """
    published = list(theirs)
    found = []
    for block in ours:
        for other in published:
            if _match(block, other):
                for column, grid in block.grids.items():
                    comparison = _compare(block, grid, other.grids[column]) if column in other.grids else None
                    if comparison is not None:
                        found.append(comparison)
    return tuple(found)


def published_key(key: BlockKey) -> tuple[str, str, str, str]:
    """Dataset, framework, backbone and stage of a block in the words of the published tables.

    There VSE-infinity is trained in one stage, `train`, on the regions `butd` or the grid cells of `wsl`; here its only
    stage is `frozen` with precomputed regions and `finetune` with the backbone that makes the cells. A timm name loses
    the tag of its weights, and the vision transformer its image size.
    """
    backbone, stage = key.backbone.split(".")[0].replace("vit_base_patch16_224", "vit_base_patch16"), key.stage
    if key.framework == "vse_infty" and key.backbone.startswith("butd") and stage == "frozen":
        backbone, stage = "butd", "train"
    if key.framework == "vse_infty" and key.backbone.startswith("resnext101_32x8d.fb_wsl") and stage == "finetune":
        backbone, stage = "wsl", "train"
    return key.dataset, key.framework, backbone, stage


def _match(ours: Block, theirs: Block) -> bool:
    return ours.key.variant == "paper" and published_key(ours.key) == published_key(theirs.key)


def _compare(block: Block, ours: Grid, theirs: Grid) -> GridComparison | None:
    cells = []
    for (pair, triplet), mine in ours.cells.items():
        printed = theirs.cells.get((pair, triplet), _NOTHING)
        if mine.mean is not None and printed.mean is not None:
            cells.append(
                CellComparison(
                    pair=pair,
                    triplet=triplet,
                    ours=mine.mean,
                    theirs=printed.mean,
                    ours_std=mine.std,
                    theirs_std=printed.std,
                    n=mine.n,
                )
            )
    if not cells:
        return None
    a, b = [cell.ours for cell in cells], [cell.theirs for cell in cells]
    ranked = len(cells) >= 3 and len(set(a)) > 1 and len(set(b)) > 1
    return GridComparison(
        block=block,
        direction=ours.direction,
        metric=ours.metric,
        cells=tuple(cells),
        spearman=float(stats.spearmanr(a, b).statistic) if ranked else None,
        kendall=float(stats.kendalltau(a, b).statistic) if ranked else None,
        mean_difference=sum(a) / len(a) - sum(b) / len(b),
    )
