"""The measured speed of a unit: real steps, nothing kept, and every error as one."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.basics.errors import GoalError
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.training.speed import measure_speed
from tests.helpers.training_cases import DATA, FROZEN, unit_of


def test_units_of_both_stages_are_measured_and_nothing_is_kept(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unit, dataset = unit_of("con/con", "sig-ms/cir"), open_dataset(DATA)
    assert measure_speed(unit, dataset, steps=3) > 0
    stage = replace(FROZEN, name="finetune", warmup_epochs=0, lr_drops=())
    assert measure_speed(replace(unit, stage=stage), dataset, steps=3) > 0
    assert not list(tmp_path.glob("goal-sweep*"))


def test_what_fails_is_said(monkeypatch) -> None:
    unit = unit_of("con/con", stage=replace(FROZEN, lr=3e38))
    with pytest.raises(GoalError, match=r"cannot be measured: .*NaN or infinity"):
        measure_speed(unit, open_dataset(DATA), steps=8)
