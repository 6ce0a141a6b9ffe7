"""The published VSE++'s batch normalisation: which steps use the batch's statistics, and what that leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from goal_core.models import ImageBackbone
from goal_core.training import StageConfig, evaluate_checkpoint, optim, train_unit
from goal_core.training.optim import validated_since
from sweeps import load_sweep
from sweeps.reading.problems import SweepError
from tests.helpers.training_cases import FROZEN, PlainFolder, StopAt, StoppedError, folders_of, unit_of

QUIRK = replace(FROZEN, bn_mode="legacy_quirk", epochs=2, warmup_epochs=0, lr_drops=())
FINETUNE = StageConfig(name="finetune", epochs=2, lr=1e-4, batch_size=16, bn_mode="legacy_quirk")


def test_mode_follows_the_published_loop() -> None:
    """Against the loop itself: training mode at an epoch's start, evaluation mode once it has validated."""
    steps, every, number = 1_133, 500, 0
    for epoch in range(5):
        training = True
        for step in range(steps):
            assert validated_since(epoch * steps, step) == (not training)
            number += 1
            if number % every == 0:
                training = False


class Watched:
    """Notes in which mode the backbone passes training batches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.modes: list[bool] = []
        plain = ImageBackbone.forward

        def forward(backbone: ImageBackbone, images: Tensor) -> Tensor:
            if len(images) == 16:  # not those of val and test
                self.modes.append(backbone.net.training)
            return plain(backbone, images)

        monkeypatch.setattr(ImageBackbone, "forward", forward)


def test_frozen_statistics_move_and_weights_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "_VALIDATED_EVERY", 3)  # an epoch has five steps
    watched = Watched(monkeypatch)
    still = folders_of(unit := unit_of("con/con", stage=replace(QUIRK, bn_mode="frozen_eval")), tmp_path / "still")
    train_unit(unit, still)
    watched.modes.clear()
    moved = folders_of(unit := unit_of("con/con", "sig-ms/cir", stage=QUIRK), tmp_path / "moved")
    train_unit(unit, moved)
    expected = [True, True, True, False, False, True, False, False, False, False]
    assert watched.modes[0::2] == expected  # the cells take turns
    assert watched.modes[1::2] == expected
    before, after = (load_file(f["con-con"].path("best.safetensors")) for f in (still, moved))
    changed = {name for name in before if name.startswith("backbone.") and not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if "running" in name or name.endswith("num_batches_tracked")}
    result = evaluate_checkpoint(moved["con-con"].path("best.safetensors"))
    assert result["metrics"]["test/rsum"] == moved["con-con"].numbers()[-1]["test/rsum"]


def test_resumed_equals_unbroken_through_both_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optim, "_VALIDATED_EVERY", 3)

    def train(root: Path, stops: tuple[int, ...]) -> dict[str, PlainFolder]:
        frozen = unit_of("con/con", stage=replace(QUIRK, checkpoint_every=2))
        train_unit(frozen, folders := folders_of(frozen, root / "frozen"))
        init = {"con-con": folders["con-con"].path("best.safetensors")}
        finetune = unit_of("con/con", stage=replace(FINETUNE, checkpoint_every=2), init=init)
        folders = folders_of(finetune, root / "finetune")
        for stop in stops:
            with pytest.raises(StoppedError):
                train_unit(finetune, folders, StopAt(stop))
        train_unit(finetune, folders)
        return folders

    whole, broken = train(tmp_path / "whole", ()), train(tmp_path / "broken", (3, 4))
    assert whole["con-con"].numbers() == broken["con-con"].numbers()
    ours, theirs = (load_file(f["con-con"].path("best.safetensors")) for f in (whole, broken))
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_is_vsepp_alone() -> None:
    with pytest.raises(SweepError, match="legacy_quirk is of framework vsepp alone"):
        load_sweep("coco_vse_infty_wsl", ["stages.finetune.bn_mode=legacy_quirk"], environ={})
