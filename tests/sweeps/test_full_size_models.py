"""The paper's blocks in full size on the meta device have the published parameters, groups and learning rates."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from goal_sweep.goal_core.data.text import SPECIAL_PIECES, Vocabulary, Wordpieces
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.config import BertConfig
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.heads import Heads
from goal_sweep.goal_core.training import StageConfig
from goal_sweep.goal_core.training.cells.optim import loss_scale, lr_at, parameter_groups
from goal_sweep.sweeps import SweepConfig, load_sweep

WORDS = Vocabulary(tuple(f"w{index}" for index in range(11_351)))  # plus four special ones: COCO's 11,355
PIECES = Wordpieces((*SPECIAL_PIECES, *(f"p{index}" for index in range(30_517))))  # bert-base-uncased has 30,522
GPO, BERT = 12_704, 108_891_648
RESNEXT101, RESNET152, VIT_B16 = 86_742_336, 58_143_808, 85_798_656
SWIN_B_384, XVLM_HEADS = 86_878_584, 127_080_962
"""The same numbers as in the counts by layer in tests/goal_core/models/test_xvlm.py."""


def built(name: str) -> tuple[SweepConfig, ImageBackbone | None, Heads]:
    config = load_sweep(name, environ={})
    (model,) = config.model.models
    weights = "random" if model.backbone.weights == "timm" else model.backbone.weights
    model = replace(model, backbone=replace(model.backbone, weights=weights), bert=BertConfig(weights="random"))
    framework = framework_of(model)
    with torch.device("meta"):
        backbone = framework.backbone(model, config.data, 0)
        width = 2048 if backbone is None else backbone.num_features
        tokenizer = WORDS if model.framework == "vsepp" else PIECES
        return config, backbone, framework.heads(model, num_features=width, tokenizer=tokenizer, seed=0)


def size(module: nn.Module | None) -> int:
    return 0 if module is None else sum(parameter.numel() for parameter in module.parameters())


def rates(stage: StageConfig, heads: Heads, backbone: ImageBackbone | None, epoch: int) -> dict[str, Any]:
    """The learning rate of each group in an epoch. Also checks that every parameter is in exactly one group."""
    groups = parameter_groups(heads, backbone, stage)
    inside = [id(parameter) for group in groups for parameter in group.parameters]
    trained = [*heads.parameters(), *(backbone.parameters() if backbone and stage.name == "finetune" else ())]
    assert sorted(inside) == sorted(map(id, trained))
    return {group.name: pytest.approx(group.lr_scale * lr_at(stage, epoch, 0, 1000)) for group in groups}


@pytest.mark.parametrize(
    ("name", "weights", "width"),
    [
        ("coco_vsepp", RESNET152, 2048),
        ("f30k_vsepp", RESNET152, 2048),
        ("coco_vsepp_vit", VIT_B16, 768),
        ("f30k_vsepp_vit", VIT_B16, 768),
    ],
)
def test_vsepp(name: str, weights: int, width: int) -> None:
    config, backbone, heads = built(name)
    assert backbone is not None
    assert (size(backbone), backbone.num_features) == (weights, width)
    gru = 3 * 1024 * (300 + 1024 + 2)
    assert size(heads) == (width + 1) * 1024 + 11_355 * 300 + gru
    frozen, finetune = config.stages
    assert [rates(frozen, heads, backbone, epoch) for epoch in (0, 14, 15, 29)] == [
        {"heads": lr} for lr in (2e-4, 2e-4, 2e-5, 2e-5)
    ]
    assert rates(finetune, heads, backbone, 0) == {"heads": 2e-5, "backbone": 2e-5}
    assert rates(finetune, heads, backbone, 14) == {"heads": 2e-5, "backbone": 2e-5}


@pytest.mark.parametrize("name", ["coco_vse_infty_butd", "f30k_vse_infty_butd"])
def test_vse_infty_on_regions(name: str) -> None:
    config, backbone, heads = built(name)
    (stage,) = config.stages
    assert backbone is None
    mlp = (2048 + 1) * 512 + 2 * 512 + (512 + 1) * 1024
    assert size(heads.image) == (2048 + 1) * 1024 + mlp + GPO
    assert size(heads.text) == BERT + (768 + 1) * 1024 + GPO
    assert rates(stage, heads, backbone, 14) == {"heads": 5e-4, "bert": 5e-5}
    assert rates(stage, heads, backbone, 15) == {"heads": 5e-5, "bert": 5e-6}
    assert stage.name == "frozen"


@pytest.mark.parametrize("name", ["coco_vse_infty_wsl", "f30k_vse_infty_wsl"])
def test_vse_infty_on_the_cells_of_the_wsl_resnext(name: str) -> None:
    config, backbone, heads = built(name)
    (stage,) = config.stages
    assert size(backbone) == RESNEXT101
    assert size(heads.image) == (2048 + 1) * 1024 + GPO
    assert size(heads.text) == BERT + (768 + 1) * 1024 + GPO
    assert rates(stage, heads, backbone, 0) == {"heads": 5e-4, "bert": 5e-5, "backbone": 5e-6}
    assert rates(stage, heads, backbone, 24) == {"heads": 5e-5, "bert": 5e-6, "backbone": 5e-7}
    assert [loss_scale(stage, epoch, 1107, 4428) for epoch in (0, 1, 2)] == [1, 0.25, 1]


@pytest.mark.parametrize(("name", "steps"), [("coco_xvlm", 3542), ("f30k_xvlm", 906)])
def test_xvlm(name: str, steps: int) -> None:
    config, backbone, heads = built(name)
    (stage,) = config.stages
    assert (size(backbone), size(heads)) == (SWIN_B_384, XVLM_HEADS)
    rise = 10 * steps // 10
    groups = parameter_groups(heads, backbone, stage)
    assert {group.lr_scale for group in groups} == {1.0}  # the published multiplier of two applies to no parameter
    assert {group.name.endswith("without decay"): group.decay for group in groups} == {False: True, True: False}
    assert lr_at(stage, 0, 0, steps) == 0
    assert lr_at(stage, 0, rise // 2, steps) == pytest.approx(1.5e-5)
    assert lr_at(stage, 1, 0, steps) == pytest.approx(3e-5)
    assert lr_at(stage, 9, steps - 1, steps) == pytest.approx(3e-5 / (9 * steps))
    assert (stage.beta2, stage.weight_decay, stage.grad_clip, stage.drop_last) == (0.98, 0.01, 0, True)
    assert set(rates(stage, heads, backbone, 1)) == {group.name for group in groups}
