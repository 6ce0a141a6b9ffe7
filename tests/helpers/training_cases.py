"""Tiny units of every framework to train in tests, and a training's files without a store."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from goal_sweep.goal_core.checkpoints import weights_in
from goal_sweep.goal_core.data.config import DataConfig, ImageConfig, ScenesConfig
from goal_sweep.goal_core.models import BackboneConfig, BertConfig, ModelConfig, TextConfig, XvlmConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training import Callback, FolderFiles, StageConfig, TrainingPlan, UnitPlan
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.train import train_unit

DATA = ScenesConfig(num_train=16, num_val=8, num_test=8, image=ImageConfig(size=32, resize=32, augment="none"))
MODEL = ModelConfig(
    backbone=BackboneConfig(name="test_resnet", weights="random"), text=TextConfig(word_dim=8), embed_dim=16
)
FROZEN = StageConfig(name="frozen", epochs=3, lr=1e-3, batch_size=16, warmup_epochs=1, lr_drops=(2,))
FINETUNE = StageConfig(name="finetune", epochs=2, lr=1e-4, batch_size=16)

GRID = ModelConfig(
    framework="vse_infty",
    backbone=BackboneConfig(name="test_resnet", weights="random"),
    embed_dim=16,
    bert=BertConfig(weights="random", layers=1, width=16, heads=2),
)
REGIONS = replace(GRID, backbone=BackboneConfig(name="butd", weights="precomputed"))
VECTORS = replace(MODEL, backbone=REGIONS.backbone)
EMBEDDED = replace(VECTORS, framework="vectors")
GRID_DATA = replace(DATA, num_train=8, image=ImageConfig(size=64, resize=64, augment="vse_infty"))
SET_FROZEN = StageConfig(
    name="frozen", epochs=2, lr=1e-3, batch_size=16, optimizer="adamw", weight_decay=1e-4, bert_lr_scale=0.1,
    warmup_epochs=1, drop_last=True,
)  # fmt: skip
STAGED = replace(SET_FROZEN, name="finetune", epochs=3, backbone_lr_scale=0.01, frozen_epochs=1, ramp_epochs=1)

XVLM = ModelConfig(
    framework="xvlm",
    backbone=BackboneConfig(name="swin_mini_patch8_window4", weights="random"),
    embed_dim=16,
    bert=BertConfig(weights="random", layers=2, width=16, heads=2),
    xvlm=XvlmConfig(fusion_layer=1, rerank_top=5),
)
XVLM_DATA = replace(DATA, num_train=8, image=ImageConfig(size=64, resize=64, augment="xvlm"))
XVLM_STAGE = StageConfig(
    name="finetune", epochs=2, lr=1e-3, batch_size=16, optimizer="adamw", weight_decay=0.01, beta2=0.98,
    schedule="linear", lr_warmup=0.1, grad_clip=0, drop_last=True,
)  # fmt: skip

TRAINED = replace(STAGED, frozen_epochs=0, ramp_epochs=0, warmup_epochs=0)
"""As `STAGED`, but everything trains from the first step."""
XVLM_DROPS = replace(XVLM_STAGE, schedule="drops", lr_warmup=0.0)
"""As `XVLM_STAGE`, but the first step has a learning rate."""


class PlainFolder(FolderFiles):
    """A training's files in a folder, and what tests read of them."""

    def best(self) -> Path:
        """The weights of the best epoch, once the training is done."""
        return weights_in(self.root)

    def records(self) -> list[dict[str, Any]]:
        """What was recorded of every epoch."""
        return [json.loads(line) for line in (self.root / "metrics.jsonl").read_text().splitlines()]

    def numbers(self) -> list[dict[str, float]]:
        """Every metric of every epoch except the times, then the final metrics."""
        rows = [record["metrics"] for record in self.records()]
        rows.append(json.loads((self.root / "result.json").read_text())["metrics"])
        return [{key: value for key, value in row.items() if not key.startswith(("time/", "system/"))} for row in rows]

    def result(self) -> dict[str, float]:
        """The final recalls on the test split."""
        return {key: value for key, value in self.numbers()[-1].items() if key.startswith("test")}


def same_weights(one: PlainFolder, other: PlainFolder) -> bool:
    """Whether the best weights of two trainings have the same names and the same bits."""
    ours, theirs = (load_file(folder.best()) for folder in (one, other))
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


class StoppedError(BaseException):
    """Stands for a kill."""


class StopAt(Callback):
    """Ends the process's work at a step, as a kill would."""

    def __init__(self, step: int) -> None:
        self.left = step

    def step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise StoppedError


def unit_of(*names: str, init: Mapping[str, Path] | None = None, **changes: Any) -> UnitPlan:
    """A unit of the named objectives. Their names, with a dash, are the keys and cell ids."""
    trainings = []
    for name in names:
        pair, triplet = name.split("/")
        cell_id = f"{pair}-{triplet}"
        objective = ObjectiveConfig(pair=pair, triplet=triplet)
        trainings.append(
            TrainingPlan(
                key=cell_id,
                cell_id=cell_id,
                objective=objective,
                init=(init or {}).get(cell_id),
                init_key=cell_id if init else "",
            )
        )
    return replace(UnitPlan(trainings=tuple(trainings), data=DATA, model=MODEL, seed=1, stage=FROZEN), **changes)


def folders_of(unit: UnitPlan, root: Path) -> dict[str, PlainFolder]:
    """A folder for each training of a unit."""
    return {training.key: PlainFolder(root / training.key) for training in unit.trainings}


def train_killed(unit: UnitPlan, folders: Mapping[str, PlainFolder], *stops: int) -> None:
    """Train a unit to the end although it is killed after each of these numbers of steps."""
    for stop in stops:
        with pytest.raises(StoppedError):
            train_unit(unit, folders, StopAt(stop))
    train_unit(unit, folders)


def trained_cell(root: Path, seed: int, data: DataConfig = DATA, **changes: Any) -> Path:
    """Train one cell of `con/con` for an epoch. Returns the folder of its checkpoint."""
    stage = replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=())
    unit = unit_of("con/con", stage=stage, seed=seed, data=data, **changes)
    train_unit(unit, folders := folders_of(unit, root / f"seed-{seed}"))
    return folders["con-con"].root


def first_step(
    monkeypatch: pytest.MonkeyPatch, root: Path, unit: UnitPlan
) -> tuple[list[Tensor], Tensor, dict[str, float]]:
    """The first step of a unit's cell: gradients, the state of its random stream afterwards, and what it logs."""
    gradients: list[Tensor] = []
    cells: list[CellTrainer] = []
    clip = nn.utils.clip_grad_norm_  # or what a test put there
    step = CellTrainer.step

    def note(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
        parameters = list(parameters)
        gradients.extend(torch.zeros(()) if one.grad is None else one.grad.clone() for one in parameters)
        return clip(parameters, max_norm)

    def spy(self: CellTrainer, *arguments: object, **named: object) -> None:
        step(self, *arguments, **named)  # type: ignore[arg-type]
        cells.append(self)

    with monkeypatch.context() as patch:
        patch.setattr(nn.utils, "clip_grad_norm_", note)
        patch.setattr(CellTrainer, "step", spy)
        with pytest.raises(StoppedError):
            train_unit(unit, folders_of(unit, root), StopAt(1))
    (cell,) = cells
    return gradients, cell.stream.state["cpu"], {name: total for name, (total, _) in cell.sums.items()}
