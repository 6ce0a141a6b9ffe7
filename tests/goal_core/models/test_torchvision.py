"""Backbones of torchvision, from a file of their weights."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision import models

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.models import BackboneConfig, weights_id
from goal_sweep.goal_core.models.backbones import build_backbone

NAME = "torchvision:shufflenet_v2_x0_5"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file as torchvision publishes it, with its classifier."""
    torch.manual_seed(0)
    torch.save(models.shufflenet_v2_x0_5(weights=None).state_dict(), path := tmp_path / "shufflenet.pth")
    return path


def test_its_vectors_are_what_the_classifier_sees(weights: Path) -> None:
    config, pixels = BackboneConfig(name=NAME, weights=str(weights)), torch.randint(256, (2, 3, 32, 32)).byte()
    backbone, own = build_backbone(config, image_size=32, seed=1), models.shufflenet_v2_x0_5(weights=None).eval()
    own.load_state_dict(torch.load(weights))
    own.fc = nn.Identity()
    mean, std = (torch.tensor(one).view(3, 1, 1) for one in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        torch.testing.assert_close(backbone(pixels), own((pixels / 255 - mean) / std), rtol=1e-4, atol=1e-5)
    assert backbone.num_features == 1024
    vit = BackboneConfig(name="torchvision:vit_b_32", weights="random")
    assert build_backbone(vit, image_size=32, seed=1).num_features == 768


def test_mistakes_are_one_line(weights: Path) -> None:
    assert weights_id(BackboneConfig(name=NAME, weights=str(weights))).startswith("sha256:")
    with pytest.raises(WeightsError, match="to a file"):
        weights_id(BackboneConfig(name=NAME))
    with pytest.raises(WeightsError, match="did you mean 'torchvision:resnet50'"):
        build_backbone(BackboneConfig(name="torchvision:resnet5", weights="random"), image_size=32, seed=1)
    with pytest.raises(WeightsError, match="no cells"):
        build_backbone(BackboneConfig(name=NAME, weights="random"), image_size=32, seed=1, cells=True)
    other = BackboneConfig(name="torchvision:mnasnet0_5", weights=str(weights))
    with pytest.raises(WeightsError, match="do not fit"):
        build_backbone(other, image_size=32, seed=1)
