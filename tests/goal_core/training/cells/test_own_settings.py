"""Trainings of one unit with settings of the stage, and parameters of the objective, of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.training import TrainingPlan, UnitPlan
from goal_sweep.goal_core.training.cells.stack import CellStack
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import DATA, FINETUNE, FROZEN, PlainFolder, folders_of, same_weights, unit_of

OWN: dict[str, dict[str, Any]] = {
    "plain": {},
    "lr": {"lr": 5e-3},
    "drops": {"lr_drops": (1,), "lr_drop_factor": 0.5},
    "clip": {"grad_clip": 0.1, "warmup_epochs": 0},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "beta2": 0.9},
    "linear": {"schedule": "linear", "lr_warmup": 0.4, "lr_drops": ()},
}
TAUS = (10.0, 1.0)


def _unit(**changes: Any) -> UnitPlan:
    """Two temperatures of `sig-ms/cir` with every set of own settings."""
    plans = [
        TrainingPlan(
            key=f"{name}-{tau:g}",
            cell_id=f"cell-{tau:g}",
            objective=ObjectiveConfig(pair="sig-ms", triplet="cir", params={"tau": tau}),
            init=None,
            own=own,
        )
        for name, own in OWN.items()
        for tau in TAUS
    ]
    return replace(unit_of("con/con", stage=FROZEN), trainings=tuple(plans), **changes)


def _alone(unit: UnitPlan, key: str, root: Path) -> PlainFolder:
    """A training by itself, in a unit whose stage has its settings."""
    (plan,) = (one for one in unit.trainings if one.key == key)
    stage = replace(unit.stage, **plan.own)
    alone = replace(unit, trainings=(replace(plan, own={}),), stage=stage, sharing="none")
    train_unit(alone, folders := folders_of(alone, root))
    return folders[key]


@pytest.mark.parametrize(
    "stage", [FROZEN, pytest.param(FINETUNE, marks=pytest.mark.exhaustive)], ids=lambda one: one.name
)
def test_own_settings_train_as_a_stage_that_has_them(tmp_path: Path, stage: StageConfig) -> None:
    kept = ("lr-1", "adamw-10", *(("clip-10",) if stage is FROZEN else ("linear-1",)))
    unit = _unit(stage=stage, sharing="trunk", data=replace(DATA, num_train=8))
    unit = replace(unit, trainings=tuple(one for one in unit.trainings if one.key in kept))
    train_unit(unit, together := folders_of(unit, tmp_path / "together"))
    for key in kept:
        alone = _alone(unit, key, tmp_path / "alone")
        assert together[key].numbers() == alone.numbers(), key
        assert same_weights(together[key], alone), key
    results = [tuple(sorted(together[key].numbers()[-2].items())) for key in kept]
    assert len(set(results)) == len(kept)  # each setting does something


def test_heads_stack_cells_with_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    formed: list[list[str]] = []
    form = CellStack.__init__

    def note(self: CellStack, cells: Any) -> None:
        formed.append(list(dict.fromkeys(cell.key for cell in cells)))
        form(self, cells)

    monkeypatch.setattr(CellStack, "__init__", note)
    unit = _unit(sharing="heads")
    kept = [one for one in unit.trainings if one.key.startswith(("plain", "lr", "linear"))]
    unit = replace(unit, trainings=tuple(kept[:-1]))  # of the last settings one cell is left
    train_unit(unit, together := folders_of(unit, tmp_path / "together"))
    # In the warm-up epoch, and after it.
    assert formed == 2 * [*([f"{name}-{tau:g}" for tau in TAUS] for name in ("plain", "lr")), ["linear-10"]]
    for key in ("lr-10", "linear-10"):
        alone = _alone(unit, key, tmp_path / "alone")
        for ours, theirs in zip(together[key].numbers()[:-1], alone.numbers()[:-1], strict=True):
            assert ours["train/lr"] == theirs["train/lr"]
            assert ours["train/hinge"] == pytest.approx(theirs["train/hinge"], rel=1e-4)
            assert ours["train/weight_grad_norm"] == pytest.approx(theirs["train/weight_grad_norm"], rel=1e-2)
