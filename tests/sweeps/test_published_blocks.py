"""Every sweep of the paper's systems matches the published block that its header names."""

import csv
from pathlib import Path

import pytest

from goal_sweep.analysis import published
from goal_sweep.analysis.blocks import BlockKey
from goal_sweep.analysis.published.comparison import published_key
from goal_sweep.sweeps import list_shipped, load_sweep

GRID = Path(published.__file__).parent / "goal_grid.csv"


@pytest.mark.parametrize("name", [name for name in list_shipped() if name.startswith(("coco_vse", "f30k_vse"))])
def test_each_stage_is_a_published_block_or_only_leads_to_one(name: str) -> None:
    with GRID.open() as file:
        published = {(row["dataset"], row["framework"], row["backbone"], row["stage"]) for row in csv.DictReader(file)}
    config = load_sweep(name)
    (model,) = config.model.models
    found = [
        published_key(
            BlockKey(
                dataset=config.data.name,
                framework=model.framework,
                backbone=model.backbone.name,
                stage=stage.name,
                variant="paper",
                data_fingerprint="",
            )
        )
        for stage in config.stages
    ]
    assert found[-1] in published
    assert all(key in published for key in found) or found[0][0] == "f30k"
