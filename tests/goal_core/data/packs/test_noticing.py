"""Damage and changed images are noticed, and mended by `verify_pack`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import json_bytes, read_json
from goal_core.data import open_dataset
from goal_core.data.config import ScenesConfig
from goal_core.data.packs import (
    layout,
    open_packed,
    plan_pack,
    reading,
    verify_pack,
    write_pack,
    writing,
)
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.packs import CROPS, IMAGES, SMALL, KilledError, opened, packed, same, seen

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


def test_a_changed_image_is_noticed_and_a_touched_one_is_not(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = packed(root, CROPS, tmp_path / "packs")
    path = root / "pictures" / "0009.png"
    os.utime(path, (1, 1))
    seen(dataset, CROPS)
    content = bytearray(path.read_bytes())
    content[-9] ^= 1  # of the same size, so with the same fingerprint
    path.write_bytes(bytes(content))
    assert opened(root, CROPS).fingerprint == dataset.fingerprint
    with pytest.raises(DataError, match=r"0009\.png has changed since it was packed"):
        seen(open_packed(opened(root, CROPS), CROPS, tmp_path / "packs")[0], CROPS)
    shutil.copy(root / "pictures" / "0010.png", path)
    again = opened(root, CROPS)
    assert len(verify_pack(again, plan_pack(again, CROPS, tmp_path / "packs"))) in (0, 1)
    assert same(seen(again, CROPS), seen(packed(root, CROPS, tmp_path / "packs"), CROPS))


def changed_in_place(path: Path) -> None:
    """Another content of the same size, and the time of the one before."""
    content, before = bytearray(path.read_bytes()), path.stat()
    content[-9] ^= 1
    path.write_bytes(bytes(content))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_changed_image_that_keeps_size_and_time_is_noticed(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = packed(root, CROPS, tmp_path / "packs")
    changed_in_place(root / "pictures" / "0009.png")
    with pytest.raises(DataError, match=r"0009\.png has changed since it was packed"):
        seen(dataset, CROPS)


def test_verify_compares_the_content_of_files_whose_size_and_times_are_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_dataset(tmp_path / "data")
    monkeypatch.setattr(writing, "size_and_times", lambda status: (status.st_size, 1, 1))
    monkeypatch.setattr(reading, "size_and_times", lambda status: (status.st_size, 1, 1))
    dataset = packed(root, CROPS, tmp_path / "packs")
    changed_in_place(root / "pictures" / "0009.png")
    seen(dataset, CROPS)
    (problem,) = verify_pack(opened(root, CROPS), plan_pack(dataset, CROPS, tmp_path / "packs"))
    assert "0009.png has changed since it was packed" in problem


@pytest.mark.parametrize("rows", ["beside", "index"])
def test_verify_reads_the_finished_shards_of_a_pack_that_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan, complete = plan_pack(dataset, CROPS, tmp_path / "packs"), writing._complete
    if rows == "beside":

        def stop(*arguments: Any) -> int:
            raise KilledError

        monkeypatch.setattr(writing, "_complete", stop)
        with pytest.raises(KilledError):
            write_pack(dataset, plan, shard_bytes=SMALL)
        monkeypatch.setattr(writing, "_complete", complete)
    else:
        write_pack(dataset, plan, shard_bytes=SMALL)
        plan.folder.joinpath(layout.DESCRIPTION).write_bytes(b"{")
    plan.shard("train", 0).unlink()
    shard = plan.shard("train", 3)
    content = bytearray(shard.read_bytes())
    content[50] ^= 1
    shard.write_bytes(content)
    assert [str(shard) in problem for problem in verify_pack(dataset, plan)] == (
        [True] if rows == "beside" else [False, True]
    )
    assert not shard.exists()
    assert not verify_pack(dataset, plan)
    write_pack(dataset, plan, shard_bytes=SMALL)
    assert same(seen(dataset, CROPS), seen(open_packed(dataset, CROPS, tmp_path / "packs")[0], CROPS))


@pytest.mark.parametrize("name", ["train-00001.bin", "val-00000.bin", "train.index", "pack.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_damage_is_one_line_and_verify_mends_it(tmp_path: Path, name: str, damage: str) -> None:
    root, packs = write_dataset(tmp_path / "data"), tmp_path / "packs"
    expected = seen(packed(root, CROPS, packs), CROPS)
    dataset = opened(root, CROPS)
    plan = plan_pack(dataset, CROPS, packs)
    path = plan.folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content if damage == "flip" else content[:-1])
    if damage == "remove":
        path.unlink()
    if (name, damage) == ("pack.json", "remove"):
        assert "no pack" in open_packed(dataset, CROPS, packs)[1]
    else:
        with pytest.raises(DataError, match=name) as caught:
            seen(open_packed(dataset, CROPS, packs)[0], CROPS)
        assert "--verify" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert verify_pack(dataset, plan)
        assert not str(open_packed(dataset, CROPS, packs)[1]).startswith("pack ")
    assert same(expected, seen(packed(root, CROPS, packs), CROPS))
    assert not verify_pack(dataset, plan)


def test_an_index_that_lacks_rows_is_one_line_and_is_mended(tmp_path: Path) -> None:
    root, packs = write_dataset(tmp_path / "data"), tmp_path / "packs"
    dataset = packed(root, CROPS, packs)
    plan = plan_pack(dataset, CROPS, packs)
    index, description = plan.index("train"), plan.folder / layout.DESCRIPTION
    index.write_bytes(index.read_bytes()[: -layout.ROW.itemsize])
    stated = read_json(description)
    assert stated is not None
    stated["files"][index.name] -= layout.ROW.itemsize
    description.write_bytes(json_bytes(stated))
    with pytest.raises(DataError, match=r"train\.index is damaged: it has .* bytes instead of .*--verify"):
        open_packed(opened(root, CROPS), CROPS, packs)
    (problem,) = verify_pack(opened(root, CROPS), plan)
    assert "train.index is damaged" in problem
    assert same(seen(opened(root, CROPS), CROPS), seen(packed(root, CROPS, packs), CROPS))


def test_scenes_have_no_files_to_compare(tmp_path: Path) -> None:
    image = IMAGES["none"]
    dataset = open_dataset(ScenesConfig(num_train=4, num_val=2, num_test=2, image=image))
    plan = plan_pack(dataset, image, tmp_path)
    write_pack(dataset, plan)
    with_pack, _ = open_packed(dataset, image, tmp_path)
    assert same(seen(dataset, image), seen(with_pack, image))
    assert np.fromfile(plan.index("train"), layout.ROW)["file_size"].tolist() == [0] * 4
