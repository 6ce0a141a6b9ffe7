"""Tiny units to train in tests, and training folders without a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goal_core.data.config import ImageConfig, ScenesConfig
from goal_core.models import BackboneConfig, GruConfig, ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training import StageConfig, TrainingPlan, UnitPlan, train_unit
from goal_core.training.plan import SilentListener

DATA = ScenesConfig(num_train=16, num_val=8, num_test=8, image=ImageConfig(size=32, resize=32, augment="none"))
MODEL = ModelConfig(
    backbone=BackboneConfig(name="test_resnet", weights="random"), text=GruConfig(word_dim=8), embed_dim=16
)
FROZEN = StageConfig(name="frozen", epochs=3, lr=1e-3, batch_size=16, warmup_epochs=1, lr_drops=(2,))


class PlainFolder:
    """A training folder on disk, without leases."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        return self.root / name

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        temporary = self.root / f"{name}.new"
        write(temporary)
        temporary.replace(self.root / name)

    def write_metrics(self, records: Sequence[Mapping[str, Any]]) -> None:
        (self.root / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def log(self, line: str) -> None:
        with (self.root / "log.txt").open("a") as file:
            file.write(f"{line}\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        (self.root / "result.json").write_text(json.dumps(result))

    def discard(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def numbers(self) -> list[dict[str, float]]:
        """Every metric of every epoch except the times, then the final metrics."""
        lines = (self.root / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line)["metrics"] for line in lines]
        rows.append(json.loads((self.root / "result.json").read_text())["metrics"])
        return [{key: value for key, value in row.items() if not key.startswith("time/")} for row in rows]


class StoppedError(BaseException):
    """Stands for a kill."""


class StopAt(SilentListener):
    """Ends the work at a step, as a kill would."""

    def __init__(self, step: int) -> None:
        self.left = step

    def step(self, done: int, total: int) -> None:
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
            TrainingPlan(key=cell_id, cell_id=cell_id, objective=objective, init=(init or {}).get(cell_id))
        )
    return replace(UnitPlan(trainings=tuple(trainings), data=DATA, model=MODEL, seed=1, stage=FROZEN), **changes)


def folders_of(unit: UnitPlan, root: Path) -> dict[str, PlainFolder]:
    """A folder for each training of a unit."""
    return {training.key: PlainFolder(root / training.key) for training in unit.trainings}


def trained_cell(root: Path, seed: int, data: ScenesConfig = DATA) -> Path:
    """Train one cell of `con/con` for an epoch. Returns the folder of its checkpoint."""
    stage = replace(FROZEN, epochs=1, warmup_epochs=0, lr_drops=())
    unit = unit_of("con/con", stage=stage, seed=seed, data=data)
    folders = folders_of(unit, root / f"seed-{seed}")
    train_unit(unit, folders)
    return folders["con-con"].root
