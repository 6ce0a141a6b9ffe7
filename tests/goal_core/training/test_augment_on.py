"""Where a unit augments its training images, and what its log says about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import goal_core.data.images
from goal_core.data import open_dataset
from goal_core.data.packs import open_packed, plan_pack, write_pack
from goal_core.errors import DeviceError
from goal_core.training.sharing import augments_on_device
from tests.helpers.training_cases import DATA, unit_of

CROPS = replace(DATA, image=replace(DATA.image, augment="crop_flip"))
CUDA: dict[str, Any] = {"device": "cuda", "data": CROPS}


@pytest.mark.parametrize(
    ("changes", "packed", "there", "why"),
    [
        ({"data": CROPS}, True, False, "augmented on the CPU"),
        ({"data": CROPS, "augment_on": "device"}, False, True, "augmented on cpu"),
        ({"data": DATA, "augment_on": "device"}, True, False, "training images are not augmented"),
        (CUDA, True, True, "augmented on the GPU"),
        (CUDA, False, False, "no pack has decoded images to crop"),
        (CUDA | {"augment_on": "cpu"}, True, False, "augmented on the CPU"),
        (CUDA | {"data": replace(CROPS, image=replace(CROPS.image, augment="xvlm"))}, True, False, "with Pillow"),
        (CUDA | {"data": replace(CROPS, image=replace(CROPS.image, jpeg=90))}, True, False, "no pack has decoded"),
        (CUDA | {"data": replace(CROPS, image=replace(CROPS.image, decoder="nvjpeg"))}, False, True, "there"),
    ],
)
def test_the_device_is_taken_where_it_saves_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], packed: bool, there: bool, why: str
) -> None:
    monkeypatch.setattr(goal_core.data.images, "check_resampling", lambda device: None)
    unit = unit_of("con/con", **changes)
    dataset, image = open_dataset(unit.data), unit.data.image
    assert image is not None
    if packed:
        write_pack(dataset, plan_pack(dataset, image, tmp_path))
        dataset, _ = open_packed(dataset, image, tmp_path)
    found = augments_on_device(unit, dataset.splits["train"])
    assert found[0] is there
    assert why in found[1]


def test_a_pillow_that_resizes_otherwise_keeps_auto_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(device: object) -> None:
        raise DeviceError("images differ from those of this Pillow")

    monkeypatch.setattr(goal_core.data.images, "check_resampling", differ)
    dataset = open_dataset(CROPS)
    write_pack(dataset, plan_pack(dataset, CROPS.image, tmp_path))
    train = open_packed(dataset, CROPS.image, tmp_path)[0].splits["train"]
    assert augments_on_device(unit_of("con/con", **CUDA), train) == (
        False,
        ", augmented on the CPU because images differ from those of this Pillow",
    )
