"""The two grids of a tuned sweep: which runs and blocks are of which, and the two of a block beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from analysis.blocks import OF_EACH, Block, BlockKey
from analysis.tuning import Tuning


def in_grid(runs: pd.DataFrame, grid: str) -> pd.Series[bool]:
    """Which runs of a tuned sweep belong to a grid."""
    return pd.Series([grid in text.split(",") for text in runs["grid"]], index=runs.index, dtype=bool)


def of_grid(runs: pd.DataFrame, grid: str) -> pd.DataFrame:
    """The runs of a tuned sweep that belong to a grid."""
    return runs[in_grid(runs, grid)]


def beside_each_other(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks, with the default and the tuned grid of each on one colour scale."""
    return tuple(_with_other(block, blocks) if block.key.grid else block for block in blocks)


def _with_other(block: Block, blocks: Sequence[Block]) -> Block:
    grids = {name: replace(grid, beside=_beside(blocks, block, name)) for name, grid in block.grids.items()}
    return replace(block, grids=grids)


def _beside(blocks: Sequence[Block], block: Block, metric: str) -> tuple[float, ...]:
    others = [other for other in blocks if other is not block and same_but_grid(other.key, block.key)]
    return tuple(mean for other in others for mean in other.grids[metric].means.values())


def same_but_grid(one: BlockKey, other: BlockKey) -> bool:
    """Whether two keys are of the same block, perhaps of different grids."""
    variants = {one.variant, other.variant}
    return (len(variants) == 1 or OF_EACH in variants) and replace(one, grid="", variant="") == replace(
        other, grid="", variant=""
    )


def chose_default(tuning: Tuning | None, key: BlockKey, objective: str) -> bool:
    """Whether the choice of an objective, ``pair/triplet``, was the sweep's own settings."""
    pair, _, triplet = objective.partition("/")
    return tuning is not None and tuning.chose_default(key.dataset, key.framework, key.backbone, (pair, triplet))
