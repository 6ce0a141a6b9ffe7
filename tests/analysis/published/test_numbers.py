from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from analysis import published as package
from analysis.blocks import Block, CellSummary
from analysis.published import compare_blocks, published_blocks
from analysis.statistics import cells_frame

CSV = Path(package.__file__).parent / "goal_grid.csv"


def test_blocks_hold_every_printed_number() -> None:
    numbers = pd.read_csv(CSV)
    frame = cells_frame(published_blocks())
    names = ["dataset", "framework", "backbone", "stage", "direction", "metric", "pair", "triplet"]
    both = numbers.merge(frame, on=names, suffixes=("", "_ours"), validate="1:1")
    assert len(both) == len(numbers) == 300
    assert (both["mean"] == both["mean_ours"]).all()
    assert (both["std"] == both["std_ours"]).all()
    assert set(both["n"]) == {3}


def shifted(block: Block, sign: float, backbone: str) -> Block:
    grids = {
        key: replace(
            grid, cells={k: CellSummary(mean=50 + sign * (c.mean or 0), std=1.0, n=2) for k, c in grid.cells.items()}
        )
        for key, grid in block.grids.items()
    }
    return replace(block, key=replace(block.key, backbone=backbone, data_fingerprint="ab"), grids=grids)


def test_comparison_with_the_paper() -> None:
    published = published_blocks()
    vit = next(b for b in published if b.key.backbone == "vit_base_patch16" and b.key.stage == "frozen")
    same, reverse = (shifted(vit, sign, "vit_base_patch16_224") for sign in (1.0, -1.0))
    up, _ = compare_blocks([same], published)
    down, _ = compare_blocks([reverse], published)
    assert (up.spearman, up.kendall) == (pytest.approx(1.0), pytest.approx(1.0))
    assert down.spearman == pytest.approx(-1.0)
    assert up.mean_difference == pytest.approx(50.0)
    assert len(up.cells) == 15
    assert compare_blocks([shifted(vit, 1.0, "resnet18")], published) == ()
    few = {k: c for k, c in list(same.grids["i2t_r1"].cells.items())[:2]}
    two = replace(same, grids={"i2t_r1": replace(same.grids["i2t_r1"], cells=few)})
    (small,) = compare_blocks([two], published)
    assert (small.spearman, small.kendall, len(small.cells)) == (None, None, 2)
