"""Cached features of the frozen backbone."""

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import folders_of, unit_of


@pytest.mark.parametrize("damage", ["cut", "short"])
def test_damaged_cached_features_are_computed_again(tmp_path: Path, damage: str) -> None:
    unit = unit_of("con/con", cache=tmp_path / "features")
    first, second = (folders_of(unit, tmp_path / name) for name in ("first", "second"))
    train_unit(unit, first)
    cached = {path: path.read_bytes() for path in (tmp_path / "features").iterdir()}
    for path, content in cached.items():
        if damage == "cut":
            path.write_bytes(content[:50])
        else:
            save_file({"features": load_file(path)["features"][:3]}, path)
    train_unit(unit, second)
    assert second["con-con"].numbers() == first["con-con"].numbers()
    assert {path: path.read_bytes() for path in (tmp_path / "features").glob("*.safetensors")} == cached
