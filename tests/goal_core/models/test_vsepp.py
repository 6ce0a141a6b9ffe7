"""VSE++: embeddings are unit vectors, seeds fix the first weights, and weights must fit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from goal_sweep.goal_core.basics.errors import WeightsError
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig, weights_id
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.systems.vsepp import VseppHeads

RANDOM = BackboneConfig(name="test_resnet", weights="random")
MODEL = ModelConfig(backbone=RANDOM, text=TextConfig(word_dim=5), embed_dim=8)
IMAGES = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def heads(seed: int = 1) -> VseppHeads:
    return VseppHeads(MODEL, num_features=6, vocab_size=20, seed=seed)


def test_the_seed_alone_fixes_the_first_weights() -> None:
    torch.manual_seed(5)
    first = heads().state_dict()
    torch.manual_seed(6)
    assert all(torch.equal(first[key], value) for key, value in heads().state_dict().items())
    assert not torch.equal(first["image.fc.weight"], heads(2).state_dict()["image.fc.weight"])


def test_a_backbone_is_always_in_evaluation_mode() -> None:
    backbone = build_backbone(RANDOM, image_size=32, seed=1)
    backbone.train()
    assert not any(module.training for module in backbone.modules())
    assert backbone(IMAGES).shape == (3, backbone.num_features)


def test_a_backbone_that_widens_its_features_after_pooling_is_as_wide_as_what_it_gives() -> None:
    for cells, width in ((False, 1024), (True, 288)):
        config = BackboneConfig(name="mobilenetv3_small_050", weights="random")
        assert build_backbone(config, image_size=32, seed=1, cells=cells)(IMAGES).shape[-1] == width


def test_weights_from_a_file(tmp_path: Path) -> None:
    source = build_backbone(RANDOM, image_size=32, seed=7)
    path = tmp_path / "weights.safetensors"
    save_file({**source.net.state_dict(), "fc.weight": torch.zeros(5, 96)}, path)
    config = BackboneConfig(name="test_resnet", weights=str(path))
    assert torch.equal(build_backbone(config, image_size=32, seed=1)(IMAGES), source(IMAGES))
    assert weights_id(config).startswith("sha256:")
    with pytest.raises(WeightsError, match="do not fit backbone 'test_vit'"):
        build_backbone(BackboneConfig(name="test_vit", weights=str(path)), image_size=160, seed=0)


def test_an_unknown_backbone_is_one_line() -> None:
    with pytest.raises(WeightsError, match="did you mean 'resnet50'"):
        build_backbone(BackboneConfig(name="resnet_50", weights="random"), image_size=32, seed=0)
