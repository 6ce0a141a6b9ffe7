"""Blocks that run again in the backward pass: the same gradient, and less kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.models import BackboneConfig, build_backbone
from tests.helpers.training_cases import DATA, FINETUNE, MODEL, first_step, unit_of


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


@pytest.mark.parametrize("chunk", [0, 5])
def test_a_step_has_the_same_gradient(chunk: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = unit_of("sig-ms/cir", stage=replace(FINETUNE, micro_batch=chunk), model=MODEL, data=DATA)
    wanted, state, _ = first_step(monkeypatch, tmp_path / "plain", unit)
    stage = replace(unit.stage, recompute=True)
    found, same_state, _ = first_step(monkeypatch, tmp_path / "again", replace(unit, stage=stage))
    assert len(found) == len(wanted) > 5
    assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))
    assert torch.equal(same_state, state)


def test_what_would_not_be_exact_is_refused() -> None:
    drops = build_backbone(
        BackboneConfig(name="swin_mini_patch8_window4", weights="random"), image_size=64, seed=1, drop_path=0.5
    )
    with pytest.raises(ConfigError, match="recompute: blocks that are skipped at random"):
        drops.recompute()
    with pytest.raises(ConfigError, match="recompute needs bn_mode frozen_eval"):
        replace(FINETUNE, recompute=True, bn_mode="legacy_quirk")
