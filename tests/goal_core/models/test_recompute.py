"""Blocks that run again in the backward pass: the same gradient, draws and statistics, and less kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from goal_core.basics.errors import ConfigError
from goal_core.models import BackboneConfig, build_backbone
from goal_core.models.recompute import blocks_of, recompute_blocks
from goal_core.models.weights import timm_library
from goal_core.training import train_unit
from tests.helpers.training_cases import (
    DATA,
    FINETUNE,
    MODEL,
    XVLM,
    XVLM_DATA,
    XVLM_STAGE,
    first_step,
    folders_of,
    same_weights,
    unit_of,
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.ReLU()) for _ in range(3))
    )


def run(net: nn.Module, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """The gradients of a step whose modules are in evaluation mode again before the backward pass."""
    net.train()
    torch.manual_seed(3)
    loss = net(inputs).square().sum()
    net.eval()
    torch.autograd.backward(loss)
    return [one.grad for one in net.parameters() if one.grad is not None], torch.get_rng_state()


def test_dropout_is_replayed_and_statistics_are_updated_once() -> None:
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    plain, again = network(), network()
    assert len(blocks_of(again)) == 3
    recompute_blocks(again)
    ours, state = run(again, inputs)
    theirs, wanted = run(plain, inputs)
    assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))
    assert torch.equal(state, wanted)
    before = network().state_dict()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        if "num_batches" in name:
            assert value == before[name] + 1
        if "running" in name:
            assert not torch.equal(value, before[name])


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("resnet18", 8), ("test_resnet", 4), ("tf_efficientnet_lite0", 16), ("test_vit", 6)),
        *(("swin_mini_patch8_window4", 4), ("resnext101_32x8d", 33), ("test_byobnet", 4)),
    ],
)
def test_the_blocks_of_architectures_are_found(name: str, count: int) -> None:
    with torch.device("meta"):
        assert len(blocks_of(timm_library().create_model(name, num_classes=0))) == count


class Growing(nn.Module):
    """Layers that each get the list of all outputs so far, as in DenseNet."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Sequential(Joined(6 * (one + 1)), nn.ReLU()) for one in range(3))

    def forward(self, inputs: Tensor) -> Tensor:
        features = [inputs]
        for layer in self.layers:
            features.append(layer(features))
        return features[-1]


class Joined(nn.Module):
    """Two layers on what a list holds at the moment."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, 6), nn.Linear(6, 6)

    def forward(self, features: list[Tensor]) -> Tensor:
        result: Tensor = self.second(self.first(torch.cat(features, dim=1)))
        return result


def test_a_block_sees_a_list_as_it_was_in_the_first_run() -> None:
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    plain, again = Growing(), Growing()
    recompute_blocks(again)
    ours, _ = run(again, inputs)
    theirs, _ = run(plain, inputs)
    assert len(ours) == len(theirs) == 12
    assert all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))


def test_a_network_without_blocks_is_refused() -> None:
    with pytest.raises(ConfigError, match="recompute: Linear has no blocks"):
        recompute_blocks(nn.Linear(2, 2))


def kept_bytes(backbone: nn.Module) -> int:
    """What autograd keeps of a forward pass."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = backbone(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert features.requires_grad
    return sum(kept.values())


def test_it_keeps_less() -> None:
    config = BackboneConfig(name="resnet18", weights="random")
    plain, again = (build_backbone(config, image_size=64, seed=1) for _ in range(2))
    names = list(plain.state_dict())
    again.recompute()
    assert list(again.state_dict()) == names
    assert kept_bytes(again) < 0.75 * kept_bytes(plain)


CASES: dict[str, Any] = {
    "running statistics": dict(stage=FINETUNE, model=MODEL, data=DATA),
    "statistics of the batch": dict(stage=replace(FINETUNE, bn_mode="legacy_quirk"), model=MODEL, data=DATA),
    "stochastic depth": dict(
        stage=XVLM_STAGE, model=replace(XVLM, xvlm=replace(XVLM.xvlm, drop_path=0.5)), data=XVLM_DATA
    ),
    "stochastic depth in chunks": dict(
        stage=replace(XVLM_STAGE, micro_batch=5), model=replace(XVLM, xvlm=replace(XVLM.xvlm, drop_path=0.5)),
        data=XVLM_DATA,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_step_has_the_same_gradient(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = unit_of("sig-ms/cir", **CASES[name])
    wanted, state, _ = first_step(monkeypatch, tmp_path / "plain", unit)
    stage = replace(unit.stage, recompute=True)
    found, same_state, _ = first_step(monkeypatch, tmp_path / "again", replace(unit, stage=stage))
    assert len(found) == len(wanted) > 5
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert torch.equal(same_state, state)


def test_a_training_with_batch_statistics_ends_the_same(tmp_path: Path) -> None:
    unit = unit_of("con/con", stage=replace(FINETUNE, bn_mode="legacy_quirk", epochs=1))
    plain, again = folders_of(unit, tmp_path / "plain"), folders_of(unit, tmp_path / "again")
    train_unit(unit, plain)
    train_unit(replace(unit, stage=replace(unit.stage, recompute=True)), again)
    assert again["con-con"].numbers() == plain["con-con"].numbers()
    assert same_weights(again["con-con"], plain["con-con"])
