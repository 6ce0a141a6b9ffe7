"""The forms in which a backbone runs: what `auto` takes, equal numbers, and exact continuation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from goal_sweep.goal_core.models import BackboneConfig, build_backbone
from goal_sweep.goal_core.training import UnitPlan, train_unit
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.trunk import wants_channels_last
from tests.helpers.training_cases import (
    FINETUNE,
    FROZEN,
    StopAt,
    StoppedError,
    first_step,
    folders_of,
    train_killed,
    unit_of,
)

UNIT = unit_of("con/con", stage=FINETUNE)


@pytest.mark.parametrize(
    ("name", "changes", "wanted"),
    [
        ("test_resnet", {}, False),
        ("test_resnet", {"device": "cuda"}, False),
        ("test_resnet", {"device": "cuda", "precision": "bf16"}, True),
        ("test_vit", {"device": "cuda", "precision": "bf16"}, False),
        ("test_resnet", {"device": "cuda", "precision": "bf16", "memory_format": "channels_first"}, False),
        ("test_resnet", {"memory_format": "channels_last"}, True),
    ],
)
def test_auto_takes_channels_last_where_tensor_cores_want_it(name: str, changes: dict[str, Any], wanted: bool) -> None:
    backbone = build_backbone(BackboneConfig(name=name, weights="random"), image_size=160, seed=1)
    assert wants_channels_last(backbone, replace(UNIT, **changes)) == wanted


@pytest.mark.parametrize("stage", [FINETUNE, replace(FINETUNE, micro_batch=5)])
def test_channels_last_has_the_same_gradient(stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = replace(UNIT, stage=stage)
    wanted, _, _ = first_step(monkeypatch, tmp_path / "first", unit)
    found, _, _ = first_step(monkeypatch, tmp_path / "last", replace(unit, memory_format="channels_last"))
    scale = max(float(one.abs().max()) for one in wanted)
    assert scale > 0
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5 * scale)


def test_a_killed_training_in_channels_last_ends_as_the_unbroken_one(tmp_path: Path) -> None:
    """Files know one order of numbers, fused Adam that of the memory: weights and moments must agree on it."""
    unit = replace(UNIT, memory_format="channels_last", stage=replace(FINETUNE, checkpoint_every=1, epochs=1))
    unbroken, killed = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "killed")
    train_unit(unit, unbroken)
    train_killed(unit, killed, 2)
    assert killed["con-con"].numbers() == unbroken["con-con"].numbers()


def test_a_training_may_go_on_in_another_form(tmp_path: Path) -> None:
    unit = replace(UNIT, stage=replace(FINETUNE, checkpoint_every=1, epochs=1))
    unbroken, changed = folders_of(unit, tmp_path / "unbroken"), folders_of(unit, tmp_path / "changed")
    train_unit(unit, unbroken)
    with pytest.raises(StoppedError):
        train_unit(unit, changed, StopAt(2))
    again = replace(unit, memory_format="channels_last")
    train_unit(again, changed)
    assert changed["con-con"].numbers()[0] == pytest.approx(unbroken["con-con"].numbers()[0], rel=1e-4)


def test_adams_moments_lie_like_their_weights_after_a_restart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit = replace(UNIT, memory_format="channels_last", stage=replace(FINETUNE, checkpoint_every=1, epochs=1))
    seen: list[bool] = []
    step = CellTrainer.step

    def look(self: CellTrainer, *arguments: Any, **named: Any) -> None:
        for parameter, slots in self.optimizer.state.items():
            seen.append(slots["exp_avg"].stride() == parameter.stride())
        step(self, *arguments, **named)

    monkeypatch.setattr(CellTrainer, "step", look)
    train_killed(unit, folders_of(unit, tmp_path), 1)
    assert len(seen) > 20
    assert all(seen)


def test_frozen_features_of_another_layout_are_not_taken_from_the_cache(tmp_path: Path) -> None:
    unit = unit_of("con/con", stage=replace(FROZEN, epochs=2, lr_drops=()), cache=tmp_path / "cache")
    train_unit(unit, folders_of(unit, tmp_path / "first"))
    count = len(list((tmp_path / "cache").iterdir()))
    train_unit(replace(unit, memory_format="channels_last"), folders_of(unit, tmp_path / "last"))
    assert len(list((tmp_path / "cache").iterdir())) == 2 * count > 0


def test_half_precision_rounds_the_passes_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: set[torch.dtype] = set()
    features = CellTrainer._features

    def look(self: CellTrainer, inputs: Tensor) -> Tensor:
        found = features(self, inputs)
        seen.add(found.dtype)
        assert all(one.dtype == torch.float32 for one in self.parameters)
        return found

    wanted, _, _ = first_step(monkeypatch, tmp_path / "fp32", UNIT)
    monkeypatch.setattr(CellTrainer, "_features", look)
    found, _, _ = first_step(monkeypatch, tmp_path / "bf16", replace(UNIT, precision="bf16"))
    assert seen == {torch.bfloat16}
    assert all(one.dtype == torch.float32 for one in found)
    ours, theirs = (torch.cat([one.flatten() for one in both]) for both in (found, wanted))
    assert 0 < float((ours - theirs).norm() / theirs.norm()) < 0.2  # the hardest negatives may be others


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_each_form_has_the_same_gradient_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    unit: UnitPlan = replace(UNIT, device="cuda", memory_format="channels_first")
    wanted, _, _ = first_step(monkeypatch, tmp_path / "plain", unit)
    unit = replace(unit, memory_format="channels_last")
    found, _, _ = first_step(monkeypatch, tmp_path / "other", unit)
    scale = max(float(one.abs().max()) for one in wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3 * scale)
