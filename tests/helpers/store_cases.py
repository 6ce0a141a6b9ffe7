"""Trainings without a sweep, and the weights and records to store for them."""

import io
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from goal_sweep.goal_core.basics.files import json_bytes
from goal_sweep.goal_core.checkpoints.file import write_checkpoint
from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.models.config import BackboneConfig, ModelConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.goal_core.training.plan import EpochRecord
from goal_sweep.runners.store import TrainingFolder
from goal_sweep.runners.store.training import RESULT
from goal_sweep.sweeps import Training
from goal_sweep.sweeps.cells import Cell


def named(cell_id: str, key: str = "k" * 16) -> Training:
    """A frozen training of `con/con` with the given cell id and key."""
    cell = Cell(
        id=cell_id,
        data=ScenesConfig(name="scenes"),
        model=ModelConfig(backbone=BackboneConfig(name="test_byobnet", weights="random")),
        objective=ObjectiveConfig(pair="con", triplet="con"),
        seed=1,
        data_fingerprint="f",
        weights_id="random",
    )
    stage = StageConfig(name="frozen", epochs=3, lr=0.1)
    return Training(cell=cell, stage=stage, key=key, precision="fp32", before=None)


def write_weights(path: Path, value: float = 0.0) -> None:
    write_checkpoint(path, {"weight": torch.full((16,), value)}, {})


def save(folder: TrainingFolder, name: str, content: bytes) -> None:
    """Write a file of a claimed training."""
    folder.save_with(name, lambda path: path.write_bytes(content))


def load(folder: TrainingFolder, name: str) -> bytes | None:
    """The content of a training's file; None if there is none."""
    return folder.storage.read(folder.place(name))


def result_of(folder: TrainingFolder) -> dict[str, Any]:
    """The result of a finished training."""
    stated = folder.result()
    assert stated is not None
    return stated


def npz(text: str) -> bytes:
    """A small ``.npz`` file, as the ranks are."""
    file = io.BytesIO()
    np.savez(file, text=np.array(text))
    return file.getvalue()


def record(epoch: int, rsum: float | None = None) -> EpochRecord:
    rsum = 10.0 * epoch if rsum is None else rsum
    return {"epoch": epoch, "time": 1_700_000_000.0 + epoch, "metrics": {"train/hinge": 1.0 / epoch, "val/rsum": rsum}}


def result(epochs: int = 3, test_rsum: float = 42.0) -> dict[str, Any]:
    return {
        "status": "done",
        "best_epoch": epochs,
        "epochs": epochs,
        "seconds": 2.5,
        "metrics": {"test/i2t_r1": 7.0, "test/t2i_r1": 7.0, "test/rsum": test_rsum, "val/rsum": 10.0 * epochs},
    }


def write_result(folder: Path, **changes: Any) -> None:
    """Put a result into a training's folder as somebody might who knows the format; it states weights only."""
    best = {"name": "best-3.safetensors", "sha256": "0" * 64}
    own = {"attempt": 1, "finished": 1_700_000_000.0, "files": {"best.safetensors": best}}
    (folder / RESULT).write_bytes(json_bytes({**result(), **own, **changes}))


def claimed(folder: TrainingFolder, launch: str = "L", shared_by: int = 1) -> TrainingFolder:
    """The folder, which an attempt of a launch has claimed."""
    folder.claim(launch, shared_by)
    return folder


def train(folder: TrainingFolder, epochs: int = 3) -> TrainingFolder:
    """Do what a trainer does in a claimed folder, without training. Returns the folder."""
    for epoch in range(1, epochs + 1):
        folder.save_with(f"best-{epoch}.safetensors", partial(write_weights, value=epoch))
        folder.save_with("last.safetensors", partial(write_weights, value=epoch))
        folder.write_metrics([record(number) for number in range(1, epoch + 1)])
    folder.finish(result(epochs))
    return folder
