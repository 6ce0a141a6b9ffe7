"""One cell's steps: which statistics batch normalisation uses, when the backbone trains, and what the state holds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from goal_sweep.goal_core.evaluation.evaluate import open_checkpoint
from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
from goal_sweep.goal_core.training.cells import optim
from goal_sweep.goal_core.training.cells.optim import loss_scale, sum_hinge
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers import training_cases as cases

QUIRK = replace(cases.FROZEN, bn_mode="legacy_quirk", epochs=2, warmup_epochs=0, lr_drops=())


def test_frozen_statistics_move_and_weights_stay(tmp_path: Path) -> None:
    still = cases.folders_of(
        unit := cases.unit_of("con/con", stage=replace(QUIRK, bn_mode="frozen_eval")), tmp_path / "still"
    )
    train_unit(unit, still)
    moved = cases.folders_of(unit := cases.unit_of("con/con", "sig-ms/cir", stage=QUIRK), tmp_path / "moved")
    train_unit(unit, moved)
    before, after = (load_file(f["con-con"].best()) for f in (still, moved))
    changed = {name for name in before if name.startswith("backbone.") and not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "running" in name or name.endswith("num_batches_tracked")}
    result = open_checkpoint(moved["con-con"].best()).evaluate()
    assert result["metrics"]["test/rsum"] == moved["con-con"].numbers()[-1]["test/rsum"]


def test_the_backbone_waits_then_the_loss_ramps_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, bool, float]] = []
    real = CellTrainer.step

    def spy(self, inputs, batch, **shared):
        before = [parameter.detach().clone() for parameter in self.backbone.parameters()]
        at = (self.epoch, self.next_step)
        real(self, inputs, batch, **shared)
        moved = any(not torch.equal(a, b) for a, b in zip(before, self.backbone.parameters(), strict=True))
        seen.append((*at, moved, loss_scale(self.unit.stage, *at, 2)))

    monkeypatch.setattr(CellTrainer, "step", spy)
    unit = cases.unit_of("con/con", stage=cases.STAGED, data=cases.GRID_DATA, model=cases.GRID)
    train_unit(unit, cases.folders_of(unit, tmp_path))
    assert [row[3] for row in seen] == [1, 1, 0, 0.5, 1, 1]
    assert [row[2] for row in seen if row[0] == 0] == [False, False]
    assert [row[2] for row in seen if row[0] == 2] == [True, True]


def test_the_ramp_scales_the_gradient_and_not_only_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first norm after the backbone has waited, with factors of the loss that a test chooses."""
    stage = replace(cases.STAGED, batch_size=40)  # one step an epoch, so that a metric is that of a step

    def norms(factor: float, name: str) -> list[float]:
        with monkeypatch.context() as patched:
            patched.setattr(optim, "loss_scale", lambda stage, epoch, step, steps: factor if epoch else 1.0)
            unit = cases.unit_of("con/con", stage=stage, data=cases.GRID_DATA, model=cases.GRID)
            train_unit(unit, folders := cases.folders_of(unit, tmp_path / name))
        return [row["train/weight_grad_norm"] for row in folders["con-con"].numbers()[:-1]]

    whole, half = norms(1.0, "whole"), norms(0.5, "half")
    assert half[0] == whole[0]
    assert half[1] == pytest.approx(whole[1] / 2, rel=1e-5)
    assert norms(0.0, "none")[1:] == [0, 0]


def test_captions_of_one_image_are_no_negative_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor | None] = []
    warmed: list[Tensor | None] = []

    def spy(self, image_emb, text_emb, ids=None):
        seen.append(ids)
        return real(self, image_emb, text_emb, ids)

    def warm(image_BD, text_BD, margin, ids=None):
        warmed.append(ids)
        return sum_hinge(image_BD, text_BD, margin, ids)

    real = GradientObjective.forward_with_stats
    monkeypatch.setattr(GradientObjective, "forward_with_stats", spy)
    monkeypatch.setattr(optim, "sum_hinge", warm)
    unit = cases.unit_of(
        "con/con", stage=replace(cases.XVLM_STAGE, warmup_epochs=1), data=cases.XVLM_DATA, model=cases.XVLM
    )
    train_unit(unit, cases.folders_of(unit, tmp_path / "xvlm"))
    assert seen
    assert all(ids is not None and len(ids.unique()) < len(ids) for ids in seen)  # 8 images, 16 captions a batch
    assert warmed
    assert all(ids is not None for ids in warmed)
    seen.clear()
    other = cases.unit_of("con/con")
    train_unit(other, cases.folders_of(other, tmp_path / "vsepp"))
    assert seen
    assert set(seen) == {None}
