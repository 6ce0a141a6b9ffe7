"""Cached features of the frozen backbone."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.training_cases import FROZEN, folders_of, unit_of


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


def test_an_edited_image_of_the_same_size_and_time_is_not_served_from_the_cache(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    data = KarpathyConfig(
        name="tiny", root=str(root), min_word_count=1, image=ImageConfig(size=32, resize=32, augment="none")
    )
    stage = replace(FROZEN, epochs=1, lr_drops=(), warmup_epochs=0)
    unit = unit_of("con/con", data=data, cache=tmp_path / "features", stage=stage)
    names: list[set[str]] = []
    for attempt in range(3):
        train_unit(unit, folders_of(unit, tmp_path / f"{attempt}"))
        names.append({path.name for path in (tmp_path / "features").iterdir()})
        if attempt == 1:
            fingerprint = open_dataset(data).fingerprint
            path = root / "pictures" / "0000.png"
            before = path.stat()
            path.write_bytes(path.read_bytes()[:-1] + b"!")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert open_dataset(data).fingerprint != fingerprint
    assert names[0] == names[1]
    assert {name.split("-")[0] for name in names[2] - names[1]} == {"train", "val", "test"}
