"""The stated sizes of models are those of the real ones."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.models import BackboneConfig, BertConfig, ModelConfig, TextConfig, XvlmConfig
from goal_sweep.goal_core.models.backbones import build_backbone
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.sizes import backbone_size

SMALL_BERT = BertConfig(weights="random", layers=4, width=128, heads=4)


class _Words:
    """Stands for a tokenizer of a given size."""

    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("framework", ["vsepp", "vse_infty", "xvlm"])
def test_the_counted_size_of_the_heads_is_that_of_the_real_ones(framework: str) -> None:
    model = ModelConfig(
        framework=framework,
        backbone=BackboneConfig(name="test_resnet", weights="random"),
        text=TextConfig(word_dim=50),
        embed_dim=64,
        bert=SMALL_BERT,
        xvlm=XvlmConfig(fusion_layer=2),
    )
    heads = framework_of(model).heads(model, num_features=96, tokenizer=_Words(), seed=1)  # type: ignore[arg-type]
    real = sum(parameter.numel() for parameter in heads.parameters())
    counted = framework_of(model).head_size(model, ScenesConfig(), width=96, words=1000)
    # Biases, norms and the small pooling networks are not counted; in a model this small they are a few percent.
    assert counted.params == pytest.approx(real, rel=0.05)


@pytest.mark.parametrize("name", ["test_byobnet", "test_resnet", "test_vit", "swin_mini_patch8_window4", "resnet18"])
def test_the_table_states_the_size_of_the_backbone(name: str) -> None:
    config = BackboneConfig(name=f"{name}.tag", weights="random")
    size = backbone_size(ModelConfig(backbone=config))
    assert size is not None
    backbone = build_backbone(BackboneConfig(name=name, weights="random"), image_size=size.image_size, seed=0)
    assert sum(parameter.numel() for parameter in backbone.parameters()) / 1e6 == pytest.approx(size.params_m, rel=0.02)
    assert backbone.num_features == size.width
    image = torch.zeros(1, 3, size.image_size, size.image_size)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        backbone(image)
    assert counter.get_total_flops() / 2e9 == pytest.approx(size.gmac, rel=0.03)
