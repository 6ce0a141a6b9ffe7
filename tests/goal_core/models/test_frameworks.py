"""What each framework refuses, and how its backbone is built."""

from dataclasses import replace

import pytest
import torch
from timm.layers import DropPath
from torch import nn

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data.config import DataConfig, PrecompConfig, RegionsConfig
from goal_sweep.goal_core.models import ModelConfig, XvlmConfig
from goal_sweep.goal_core.models.frameworks import framework_of
from tests.helpers.training_cases import DATA, GRID, GRID_DATA, MODEL, REGIONS, VECTORS, XVLM, XVLM_DATA

REGION_DATA = RegionsConfig(name="tiny", root=".")
VECTOR_DATA = PrecompConfig(name="tiny", root=".")


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (GRID, REGION_DATA, "precomputed"),
        (REGIONS, GRID_DATA, "precomputed"),
        (replace(REGIONS, framework="vsepp"), REGION_DATA, "needs images"),
        (replace(MODEL, backbone=REGIONS.backbone), GRID_DATA, "precomputed"),
        (VECTORS, DATA, "takes backbone weights `precomputed` with data.format precomp, and only there"),
        (MODEL, VECTOR_DATA, "takes backbone weights `precomputed` with data.format precomp, and only there"),
        (VECTORS, REGION_DATA, r"one vector per image.*data.format regions\) goes with framework vse_infty"),
        (REGIONS, VECTOR_DATA, r"one vector per image \(data.format precomp\) goes with framework vsepp"),
        (XVLM, VECTOR_DATA, "needs images"),
        (XVLM, REGION_DATA, "needs images"),
        (replace(XVLM, xvlm=XvlmConfig(fusion_layer=2)), XVLM_DATA, "fusion_layer must leave a layer"),
    ],
)
def test_what_does_not_go_together_is_refused(model: ModelConfig, data: DataConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        framework_of(model).check(model, data)


def test_blocks_of_the_backbone_are_skipped_in_training_alone() -> None:
    model = replace(XVLM, xvlm=XvlmConfig(fusion_layer=1, drop_path=0.5))
    backbone = framework_of(model).backbone(model, XVLM_DATA, 1)
    assert backbone is not None
    rates = [module.drop_prob for module in backbone.modules() if isinstance(module, DropPath)]
    assert max(rates) == 0.5
    pixels = torch.randint(0, 256, (8, 3, 64, 64), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)

    def outcomes(training: bool) -> int:
        backbone.train(training)
        with torch.no_grad():
            return len({float(backbone(pixels).sum()) for _ in range(3)})

    torch.manual_seed(0)
    assert outcomes(training=False) == 1
    assert outcomes(training=True) == 3
    assert not any(isinstance(module, nn.Dropout) and module.training for module in backbone.modules())
