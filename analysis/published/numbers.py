"""The paper's blocks as printed.

Source: Xuan & Chen 2022, arXiv:2210.13188, tables as printed.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from goal_sweep.analysis.blocks import BlockKey, BlockResults, CellSummary, Grid
from goal_sweep.goal_core.evaluation.metrics import METRICS, OBJECTIVES, Metric

NUM_RUNS = 3
"""The number of runs in each printed mean; the paper does not state their seeds."""
_WSL = ("wsl", "resnext101_32x8d.fb_wsl")
_FOLDER = Path(__file__).parent


def published_blocks() -> tuple[BlockResults, ...]:
    """The paper's blocks, in the order of its tables."""
    columns = ["dataset", "framework", "backbone", "stage"]
    blocks = []
    for values, frame in pd.read_csv(_FOLDER / "goal_grid.csv").groupby(columns, sort=False):
        words = dict(zip(columns, map(str, values), strict=True))
        key = BlockKey(**words, variant="paper", data_fingerprint="")
        grids = {
            metric.key: _grid(metric, part)
            for metric in METRICS.values()
            if len(part := frame[(frame["direction"] == metric.direction) & (frame["metric"] == metric.name)])
        }
        blocks.append(BlockResults(key=key, protocol="", grids=grids))
    return tuple(blocks)


def published_key(key: BlockKey) -> tuple[str, str, str, str]:
    """Dataset, framework, backbone and stage of a block under their names in the published tables.

    The paper trains VSE-infinity in one stage, `train`, on the regions `butd` or the grid features `wsl`. Here that
    stage is `frozen` with precomputed regions, and `finetune` with the backbone that computes the grid features.
    """
    name = key.backbone.split(".")[0].replace("vit_base_patch16_224", "vit_base_patch16")
    if key.framework == "vse_infty":
        name = "butd" if name.startswith("butd") else "wsl" if key.backbone.startswith(_WSL) else name
        is_train = {"butd": "frozen", "wsl": "finetune"}.get(name) == key.stage
        return key.dataset, key.framework, name, "train" if is_train else key.stage
    return key.dataset, key.framework, name, key.stage


def _grid(metric: Metric, rows: pd.DataFrame) -> Grid:
    printed = {(str(row["pair"]), str(row["triplet"])): row for row in rows.to_dict("records")}
    cells = {
        objective: CellSummary(mean=float(printed[objective]["mean"]), std=float(printed[objective]["std"]), n=NUM_RUNS)
        for objective in OBJECTIVES
    }
    return Grid(metric=metric, cells=cells)
