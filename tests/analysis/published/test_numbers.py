from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from goal_sweep.analysis import published as package
from goal_sweep.analysis.blocks import Block, BlockKey, CellSummary
from goal_sweep.analysis.published.comparison import compare_blocks, rank_correlation, verdict_of
from goal_sweep.analysis.published.numbers import published_blocks, published_key
from goal_sweep.analysis.statistics.aggregation import cells_frame
from tests.helpers.paths import SHARED

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


def test_every_number_is_the_printed_one() -> None:
    """Against the coloured halves of the paper's source, in the order of ``goal_grid.csv``."""
    printed = re.compile(r"cellcolor\[HTML\]\{\w{6}\}([\d.]+) \$\\pm\$ ([\d.]+)")
    files = sorted((SHARED / "paper").glob("*.txt"))
    rows = [printed.findall(line) for file in files for line in file.read_text().splitlines() if "cellcolor" in line]
    if not rows:
        pytest.skip("the paper's source is not here")
    assert len(rows) == 50
    for number, block in enumerate(published_blocks()):
        here = rows[5 * number : 5 * number + 5]
        for direction, half in (("i2t", slice(0, 3)), ("t2i", slice(3, 6))):
            ours = block.grids[f"{direction}_r1"].cells.values()
            assert [(f"{c.mean:.1f}", f"{c.std:.1f}") for c in ours] == [pair for row in here for pair in row[half]]


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
    orders = [rank_correlation(block.grids["i2t_r1"], vit.grids["i2t_r1"]) for block in (same, reverse)]
    assert orders == pytest.approx([1.0, -1.0])
    assert [cell.difference.estimate for cell in up.cells.values() if cell.difference] == pytest.approx([50.0] * 15)
    assert {verdict_of(cell) for cell in up.cells.values()} == {"higher"}
    assert compare_blocks([shifted(vit, 1.0, "resnet18")], published) == ()
    few = {k: c for k, c in list(same.grids["i2t_r1"].cells.items())[:2]}
    two = replace(same, grids={"i2t_r1": replace(same.grids["i2t_r1"], cells=few)})
    (small,) = compare_blocks([two], published)
    assert len(small.cells) == 2
    assert rank_correlation(two.grids["i2t_r1"], vit.grids["i2t_r1"]) is None


def test_the_papers_own_runs_are_equal_in_every_cell() -> None:
    """Means of runs carry rounding errors, which must not break the ties of the printed means."""
    published = published_blocks()
    runs = [
        replace(
            block,
            grids={
                key: replace(
                    grid,
                    cells={
                        objective: replace(cell, mean=((cell.mean or 0) * 3 + 0.1 - 0.1) / 3 + 1e-13 * index)
                        for index, (objective, cell) in enumerate(grid.cells.items())
                    },
                )
                for key, grid in block.grids.items()
            },
        )
        for block in published
    ]
    comparisons = compare_blocks(runs, published)
    assert len(comparisons) == 20
    for comparison in comparisons:
        assert [verdict_of(cell) for cell in comparison.cells.values()] == ["equal"] * 15
        grids = [side.grids[comparison.metric.key] for side in (comparison.ours, comparison.theirs)]
        assert rank_correlation(*grids) == pytest.approx(1.0)


def test_rank_correlation_is_of_unrounded_means() -> None:
    """Two objectives that are equal to one decimal still have an order."""
    block = published_blocks()[0]
    grid = block.grids["i2t_r1"]
    ordered = sorted(grid.cells, key=lambda key: grid.cells[key].mean or 0)
    cells = {key: replace(cell, mean=40 + 0.001 * ordered.index(key)) for key, cell in grid.cells.items()}
    assert rank_correlation(replace(grid, cells=cells), grid) == pytest.approx(
        0.99, abs=0.01
    )  # not 1, because some printed means are equal


@pytest.mark.parametrize(
    ("backbone", "stage", "name"),
    [
        ("resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "finetune", ("wsl", "train")),
        ("resnext101_32x8d.fb_wsl_ig1b_ft_in1k", "frozen", ("wsl", "frozen")),
        ("butd_region", "frozen", ("butd", "train")),
        ("wsl", "train", ("wsl", "train")),
        ("resnet50.tv_in1k", "finetune", ("resnet50", "finetune")),
    ],
)
def test_real_backbones_have_the_papers_names(backbone: str, stage: str, name: tuple[str, str]) -> None:
    key = BlockKey(
        dataset="f30k", framework="vse_infty", backbone=backbone, stage=stage, variant="paper", data_fingerprint=""
    )
    assert published_key(key) == ("f30k", "vse_infty", *name)
