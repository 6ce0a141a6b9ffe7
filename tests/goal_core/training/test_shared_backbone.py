"""Cached features of the frozen backbone."""

from dataclasses import replace
from pathlib import Path

import pytest
import timm
from safetensors.torch import load_file, save_file

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.models import BackboneConfig
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.training_cases import MODEL, folders_of, unit_of


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


def test_a_picture_of_which_the_backbone_sees_nothing_is_named(tmp_path: Path) -> None:
    blind = {name: own * (own.ndim > 1) for name, own in timm.create_model("test_resnet").state_dict().items()}
    save_file(blind, weights := tmp_path / "blind.safetensors")
    model = replace(MODEL, backbone=BackboneConfig(name="test_resnet", weights=str(weights)))
    with pytest.raises(DataError, match="train scene 0: the backbone sees nothing in this picture"):
        train_unit(unit := unit_of("con/con", model=model), folders_of(unit, tmp_path))
