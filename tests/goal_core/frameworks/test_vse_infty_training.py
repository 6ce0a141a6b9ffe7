"""VSE-infinity in the trainer: side by side is alone, resumed is unbroken, its staged warm-ups, its checkpoints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from goal_core.data.config import DataConfig, ImageConfig, RegionsConfig
from goal_core.errors import ConfigError
from goal_core.frameworks import framework_of
from goal_core.models import BackboneConfig, BertConfig, ModelConfig
from goal_core.training import StageConfig, evaluate_checkpoint, train_unit
from goal_core.training import cell_trainer as cell_run_module
from goal_core.training.optim import build_optimizer, loss_scale, lr_at, set_lr
from goal_core.training.warmup import sum_hinge
from tests.helpers.training_cases import DATA, StopAt, StoppedError, folders_of, unit_of

GRID = ModelConfig(
    framework="vse_infty",
    backbone=BackboneConfig(name="test_resnet", weights="random"),
    embed_dim=16,
    bert=BertConfig(weights="random", layers=1, width=16, heads=2),
)
REGIONS = replace(GRID, backbone=BackboneConfig(name="butd", weights="precomputed"))
FROZEN = StageConfig(
    name="frozen", epochs=2, lr=1e-3, batch_size=16, optimizer="adamw", weight_decay=1e-4, bert_lr_scale=0.1,
    warmup_epochs=1, drop_last=True, checkpoint_every=2,
)  # fmt: skip
STAGED = replace(FROZEN, name="finetune", epochs=3, backbone_lr_scale=0.01, frozen_epochs=1, ramp_epochs=1)
PIXELS = replace(DATA, num_train=8, image=ImageConfig(size=64, resize=64, augment="vse_infty"))


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> RegionsConfig:
    """Eight images to train on, six to select and to test on, five regions each, five captions each."""
    root = tmp_path_factory.mktemp("regions")
    draws = np.random.default_rng(0)
    for split, count in {"train": 8, "dev": 6, "test": 6}.items():
        np.save(root / f"{split}_ims.npy", draws.normal(size=(count, 5, 7)).astype(np.float32))
        rows = [f"a {split} picture {image} seen {view} times" for image in range(count) for view in range(5)]
        (root / f"{split}_caps.txt").write_text("".join(f"{row}\n" for row in rows))
        offset = {"train": 0, "dev": 100, "test": 200}[split]
        (root / f"{split}_ids.txt").write_text("".join(f"{offset + image}\n" for image in range(count)))
    return RegionsConfig(name="tiny", root=str(root), min_word_count=1)


def case(name: str, regions: RegionsConfig) -> tuple[ModelConfig, DataConfig, StageConfig]:
    return {"regions": (REGIONS, regions, FROZEN), "cells": (GRID, PIXELS, FROZEN), "staged": (GRID, PIXELS, STAGED)}[
        name
    ]


@pytest.mark.parametrize("name", ["regions", "cells", "staged"])
def test_vse_infty_side_by_side_alone_resumed_and_evaluated_again(
    tmp_path: Path, name: str, regions: RegionsConfig
) -> None:
    model, data, stage = case(name, regions)
    objectives = ("con/con", "sig-ms/cir")
    together = unit_of(*objectives, stage=stage, data=data, model=model)
    shared = folders_of(together, tmp_path / "trunk")
    train_unit(together, shared)
    for objective in objectives:
        unit = unit_of(objective, stage=stage, data=data, model=model)
        folders = folders_of(unit, tmp_path / "none")
        with pytest.raises(StoppedError):
            train_unit(unit, folders, StopAt(3))
        train_unit(unit, folders)
        for cell_id, folder in folders.items():
            assert folder.numbers() == shared[cell_id].numbers()
            ours, theirs = (load_file(f.path("best.safetensors")) for f in (folder, shared[cell_id]))
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[key], theirs[key]) for key in ours)
            again = evaluate_checkpoint(folder.root)["metrics"]
            assert again == {key: value for key, value in folder.numbers()[-1].items() if key.startswith("test/")}


def test_the_backbone_waits_then_the_loss_ramps_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, bool, float]] = []
    real = cell_run_module.CellTrainer.step

    def spy(self, inputs, batch):
        before = [parameter.detach().clone() for parameter in self.backbone.parameters()]
        at = (self.epoch, self.next_step)
        real(self, inputs, batch)
        moved = any(not torch.equal(a, b) for a, b in zip(before, self.backbone.parameters(), strict=True))
        seen.append((*at, moved, loss_scale(self.unit.stage, *at, 2)))

    monkeypatch.setattr(cell_run_module.CellTrainer, "step", spy)
    unit = unit_of("con/con", stage=STAGED, data=PIXELS, model=GRID)
    train_unit(unit, folders_of(unit, tmp_path))
    assert [row[3] for row in seen] == [1, 1, 0, 0.5, 1, 1]
    assert [row[2] for row in seen if row[0] == 0] == [False, False]
    assert [row[2] for row in seen if row[0] == 2] == [True, True]


def test_the_ramp_scales_the_gradient_and_not_only_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first norm after the backbone has waited, with factors of the loss that a test chooses."""

    def norms(factor: float, name: str) -> list[float]:
        seen: list[float] = []

        def spy(self, stats, extra):
            seen.append(extra["weight_grad_norm"])
            real(self, stats, extra)

        with monkeypatch.context() as patched:
            patched.setattr(cell_run_module.CellTrainer, "_observe", spy)
            patched.setattr(cell_run_module, "loss_scale", lambda stage, epoch, step, steps: factor if epoch else 1.0)
            unit = unit_of("con/con", stage=STAGED, data=PIXELS, model=GRID)
            train_unit(unit, folders_of(unit, tmp_path / name))
        return seen

    real = cell_run_module.CellTrainer._observe
    whole, half = norms(1.0, "whole"), norms(0.5, "half")
    assert half[:2] == whole[:2]
    assert half[2] == pytest.approx(whole[2] / 2, rel=1e-5)
    assert norms(0.0, "none")[2:] == [0, 0, 0, 0]


def loop_of_the_sum_hinge(S: list[list[float]], margin: float, ids: list[int]) -> float:
    total = 0.0
    for i, row in enumerate(S):
        for j, score in enumerate(row):
            if ids[i] != ids[j]:
                total += max(0.0, margin + score - S[i][i]) + max(0.0, margin + score - S[j][j])
    return total


@pytest.mark.parametrize("ids", [None, [0, 1, 0, 2, 1, 3]])
def test_the_warm_up_is_that_of_a_plain_loop(ids: list[int] | None) -> None:
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.nn.functional.normalize(torch.randn(6, 4, generator=generator)) for _ in range(2))
    ours = sum_hinge(images, texts, 0.2, None if ids is None else torch.tensor(ids))
    expected = loop_of_the_sum_hinge((images @ texts.T).tolist(), 0.2, ids or list(range(6)))
    assert float(ours) == pytest.approx(expected, rel=1e-5)


def test_each_part_has_its_learning_rate() -> None:
    framework = framework_of(GRID)
    tokenizer = framework.tokenizer(GRID, ["a b c"], 1)
    heads = framework.heads(GRID, num_features=8, tokenizer=tokenizer, seed=1)
    groups = heads.parameter_groups(0.1)
    assert {id(p) for group in groups for p in group.parameters} == {id(p) for p in heads.parameters()}
    optimizer = build_optimizer(groups, FROZEN)
    set_lr(optimizer, 5e-4)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([5e-4, 5e-5])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [1e-4, 1e-4]


def test_what_does_not_go_together_is_refused(regions: RegionsConfig) -> None:
    with pytest.raises(ConfigError, match="precomputed"):
        framework_of(GRID).check(GRID, regions)
    with pytest.raises(ConfigError, match="precomputed"):
        framework_of(REGIONS).check(REGIONS, PIXELS)
    plain = replace(REGIONS, framework="vsepp")
    with pytest.raises(ConfigError, match="needs images"):
        framework_of(plain).check(plain, regions)


def test_the_linear_schedule_rises_and_falls_step_by_step() -> None:
    stage = replace(FROZEN, epochs=2, lr=1.0, schedule="linear", lr_warmup=0.2)
    rates = [lr_at(stage, epoch, step, 5) for epoch in range(2) for step in range(5)]
    assert rates == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125])
    with pytest.raises(ConfigError, match="lr_drops belong to schedule drops"):
        replace(stage, lr_drops=(1,))
