from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goal_core.data.config import ScenesConfig
from goal_core.errors import ConfigError
from goal_core.models.config import BackboneConfig
from goal_core.objectives import pair_weights, triplet_weights
from goal_core.training.config import StageConfig
from sweeps import SweepConfig, SweepModel, SweepObjectives, expand

WEIGHTS = {"resnet10t": "random", "resnet18": "timm:resnet18.a1_in1k"}


def test_order(small: SweepConfig) -> None:
    cells = expand(small, "f", WEIGHTS)
    assert len(cells) == 2 * 2 * len(pair_weights) * len(triplet_weights)
    found = [(cell.model.backbone.name, cell.seed, cell.objective.pair, cell.objective.triplet) for cell in cells]
    assert found == [
        (backbone, seed, pair, triplet)
        for backbone in ("resnet10t", "resnet18")
        for seed in (1, 2)
        for pair in pair_weights
        for triplet in triplet_weights
    ]


def test_cells_carry_what_trains_them(small: SweepConfig) -> None:
    cell = expand(small, "f", WEIGHTS)[0]
    assert cell.data == small.data
    assert cell.model == small.model.models[0]
    assert tuple(stage.config for stage in cell.stages) == small.stages
    assert {stage.precision for stage in cell.stages} == {"fp32"}


def test_names(small: SweepConfig) -> None:
    cell = next(cell for cell in expand(small, "f", WEIGHTS)[::-1] if cell.objective.name == "sig-ms/cir")
    assert cell.name(cell.stages[0]) == "sig-ms/cir resnet18 seed 2 (frozen)"
    assert cell.name("finetune") == "sig-ms/cir resnet18 seed 2 (finetune)"
    assert cell.label == "sig-ms/cir resnet18 seed 2"
    assert cell.block_label == "scenes vsepp resnet18"


def test_unknown_weights(small: SweepConfig) -> None:
    with pytest.raises(ConfigError, match="not known for resnet18"):
        expand(small, "f", {"resnet10t": "random"})


@given(
    st.sets(st.integers(0, 1000), min_size=1, max_size=5),
    st.sets(st.sampled_from(["a", "b", "c"]), min_size=1),
    st.sets(st.sampled_from(list(pair_weights)), min_size=1),
    st.sets(st.sampled_from(list(triplet_weights)), min_size=1),
)
@settings(max_examples=30, deadline=None)
def test_count_is_the_product_and_ids_are_unique(
    seeds: set[int], backbones: set[str], pairs: set[str], triplets: set[str]
) -> None:
    config = SweepConfig(
        name="x",
        data=ScenesConfig(),
        model=SweepModel(backbones=tuple(BackboneConfig(name=name) for name in backbones)),
        objectives=SweepObjectives(pair=tuple(pairs), triplet=tuple(triplets)),
        seeds=tuple(seeds),
        stages=(StageConfig(name="frozen", epochs=1, lr=1.0),),
    )
    cells = expand(config, "f", dict.fromkeys(backbones, "same"))
    assert len(cells) == len(seeds) * len(backbones) * len(pairs) * len(triplets)
    assert len({cell.id for cell in cells}) == len({cell.stages[0].key for cell in cells}) == len(cells)
