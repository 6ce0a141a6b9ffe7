from __future__ import annotations

import errno
import os
import pickle
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from goal_core import atomic
from goal_core.data import BatchSource, Dataset, DecodedImages, ImageConfig, KarpathyConfig, Vocabulary, open_dataset
from goal_core.data.config import ScenesConfig
from goal_core.data.packs import (
    BrokenImagesError,
    PackedImages,
    estimate_bytes,
    layout,
    open_packed,
    plan_pack,
    reading,
    verify_pack,
    write_pack,
    writing,
)
from goal_core.errors import DataError
from goal_core.sealed_json import json_bytes, read_json
from goal_core.training import train_unit
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.training_cases import DATA, FROZEN, folders_of, same_weights, unit_of

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")

SMALL = 3000
"""Bytes of a shard that holds very few images."""
IMAGES = {
    "none": ImageConfig(size=16, resize=20, augment="none"),
    "crop_flip": ImageConfig(size=16, resize=20, augment="crop_flip"),
    "vse_infty": ImageConfig(size=16, resize=16, augment="vse_infty"),
    "xvlm": ImageConfig(size=16, resize=16, augment="xvlm"),
    "shrunk": ImageConfig(size=16, resize=20, augment="crop_flip", shrink=20),
    "jpeg": ImageConfig(size=16, resize=20, augment="crop_flip", shrink=24, jpeg=80),
}
CROPS = IMAGES["crop_flip"]


def opened(root: Path, image: ImageConfig) -> Dataset:
    return open_dataset(KarpathyConfig(name="tiny", root=str(root), image=image, min_word_count=1))


def packed(root: Path, image: ImageConfig, packs: Path, **options: Any) -> Dataset:
    dataset = opened(root, image)
    write_pack(dataset, plan_pack(dataset, image, packs), shard_bytes=SMALL, **options)
    with_pack, where = open_packed(dataset, image, packs)
    assert where.startswith("pack ")
    return with_pack


def seen(dataset: Dataset, image: ImageConfig, workers: int = 0) -> list[Tensor]:
    """What training sees of two epochs, and evaluation of each split."""
    train = dataset.splits["train"]
    vocabulary = Vocabulary.build(train.captions, 1)
    source = BatchSource(train, vocabulary, image, batch_size=6, seed=3, num_workers=workers)
    pixels = [batch.images for epoch in (1, 2) for batch in source.batches(epoch)]
    source.close()
    for split in dataset.splits.values():
        pixels += list(DecodedImages(split, image, num_workers=workers).chunks(4))
    return [one for one in pixels if one is not None]


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(ones) == len(others) and all(map(torch.equal, ones, others))


@pytest.mark.parametrize("name", IMAGES)
def test_a_pack_gives_the_pixels_of_the_files_bit_for_bit(tmp_path: Path, name: str) -> None:
    image, root = IMAGES[name], write_dataset(tmp_path / "data")
    assert same(seen(opened(root, image), image), seen(packed(root, image, tmp_path / "packs"), image))


def test_worker_processes_and_pickled_readers_read_it(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = packed(root, CROPS, tmp_path / "packs")
    expected = seen(opened(root, CROPS), CROPS)
    assert same(expected, seen(dataset, CROPS, workers=2))
    copied = {name: pickle.loads(pickle.dumps(split)) for name, split in dataset.splits.items()}
    assert same(expected, seen(replace(dataset, splits=copied), CROPS))
    first = dataset.splits["val"].first(2)
    assert same(list(DecodedImages(first, CROPS).chunks(4)), [expected[-2][:2]])


def test_threads_that_open_a_shard_together_close_it_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = packed(write_dataset(tmp_path / "data"), CROPS, tmp_path / "packs")
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    together, opened = threading.Barrier(2), Path.open

    def slowly(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == plan.shard("train", 0):
            together.wait(5)  # both threads have found that it is not open
        return opened(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", slowly)
    reader = dataset.splits["train"].reader
    assert isinstance(reader, PackedImages)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(reader._shard, [0, 0])
    assert first == second
    assert os.fstat(first).st_size == plan.shard("train", 0).stat().st_size


def test_no_file_is_decoded_where_there_is_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = packed(write_dataset(tmp_path / "data"), CROPS, tmp_path / "packs")

    def refuse(*arguments: object) -> None:
        raise AssertionError("an image was decoded")

    monkeypatch.setattr("goal_core.data.images.decode_image", refuse)
    assert seen(dataset, CROPS)


def test_drawn_images_can_be_packed_and_train_to_the_same_numbers(tmp_path: Path) -> None:
    data = replace(DATA, image=replace(DATA.image, augment="crop_flip"))
    unit = unit_of("con/con", "sig/nca", data=data, stage=replace(FROZEN, epochs=2, lr_drops=()))
    dataset = open_dataset(data)
    plain, with_pack = folders_of(unit, tmp_path / "plain"), folders_of(unit, tmp_path / "packed")
    train_unit(unit, plain)
    write_pack(dataset, plan_pack(dataset, data.image, tmp_path / "packs"))
    train_unit(replace(unit, packs=tmp_path / "packs"), with_pack)
    for key, folder in plain.items():
        assert folder.numbers() == with_pack[key].numbers()
        assert same_weights(folder, with_pack[key])
        assert "images: decoded from their files" in (folder.root / "log.txt").read_text()
        assert "images: pack" in (with_pack[key].root / "log.txt").read_text()


class _KilledError(BaseException):
    """Stands for a kill."""


def test_a_killed_pack_continues_to_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = opened(root, CROPS)
    whole = plan_pack(dataset, CROPS, tmp_path / "whole")
    write_pack(dataset, whole, shard_bytes=SMALL)
    plan, kills = plan_pack(dataset, CROPS, tmp_path / "killed"), 0
    for left in range(1, 1000, 7):
        points = iter(range(left))

        def die(name: str, points: Any = points) -> None:
            if next(points, None) is None:
                raise _KilledError

        monkeypatch.setattr(atomic, "crash_point", die)
        try:
            write_pack(dataset, plan, shard_bytes=SMALL)
            break
        except _KilledError:
            kills += 1
            assert "not complete" in open_packed(dataset, CROPS, tmp_path / "killed")[1] or left == 1
    assert kills > 3
    files = {path.name: path.read_bytes() for path in whole.folder.iterdir()}
    kept = [path for path in plan.folder.iterdir() if not path.name.startswith(".")]  # a living process's stay
    assert files == {path.name: path.read_bytes() for path in kept}
    assert len(files) > 10


@pytest.mark.parametrize("operation", ["append", "sync", "rename"])
def test_a_write_error_in_the_middle_of_a_shard_leaves_a_whole_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    root, append = write_dataset(tmp_path / "data"), writing._append
    calls = {"append": 0, "sync": 0, "rename": 0}

    def fail(done: str) -> None:
        if done == operation:
            calls[done] += 1
            if calls[done] == 2:
                raise OSError(errno.EIO, "Input/output error")

    def appended(*arguments: Any) -> Any:
        fail("append")
        return append(*arguments)

    monkeypatch.setattr(writing, "_append", appended)
    monkeypatch.setattr(
        atomic, "before_operation", lambda done, path: fail(done) if path.name == "train-00000.bin" else None
    )
    calls["sync"] = calls["rename"] = 1  # the first sync and rename are of this shard, the second image is in it
    dataset = opened(root, CROPS)
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    write_pack(dataset, plan)
    assert calls[operation] >= 2
    assert not verify_pack(dataset, plan)
    assert same(seen(dataset, CROPS), seen(open_packed(dataset, CROPS, tmp_path / "packs")[0], CROPS))


def test_of_two_processes_that_pack_at_once_both_give_the_whole_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan, read = plan_pack(dataset, CROPS, tmp_path / "packs"), writing.rows_of
    others: list[int] = []
    at_its_end = False

    def reading(*arguments: Any) -> Any:
        found = read(*arguments)
        if at_its_end and not others:
            others.append(0)
            write_pack(dataset, plan, shard_bytes=SMALL)  # the other process ends here, and removes the rows
        return found

    complete = writing._complete

    def completing(*arguments: Any) -> int:
        nonlocal at_its_end
        at_its_end = True
        return complete(*arguments)

    monkeypatch.setattr(writing, "_complete", completing)
    monkeypatch.setattr(writing, "rows_of", reading)
    write_pack(dataset, plan, shard_bytes=SMALL)
    assert others
    assert not verify_pack(dataset, plan)
    assert same(seen(dataset, CROPS), seen(open_packed(dataset, CROPS, tmp_path / "packs")[0], CROPS))


@pytest.mark.parametrize("damage", ["cut", "remove"])
def test_a_shard_that_is_lost_while_others_are_written_is_no_complete_pack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan, complete = plan_pack(dataset, CROPS, tmp_path / "packs"), writing._complete

    def lose(*arguments: Any) -> int:
        shard = plan.shard("train", 1)
        shard.write_bytes(shard.read_bytes()[:-1]) if damage == "cut" else shard.unlink()
        return complete(*arguments)

    monkeypatch.setattr(writing, "_complete", lose)
    with pytest.raises(DataError, match=r"train-00001\.bin is not as it was written.*--verify"):
        write_pack(dataset, plan, shard_bytes=SMALL)
    assert "not complete" in open_packed(dataset, CROPS, tmp_path / "packs")[1]
    monkeypatch.setattr(writing, "_complete", complete)
    write_pack(dataset, plan, shard_bytes=SMALL)
    assert not verify_pack(dataset, plan)


def test_finished_shards_are_not_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    write_pack(dataset, plan, shard_bytes=SMALL)
    made: list[int] = []
    make = writing._Work.__call__
    plan.shard("train", 1).unlink()
    monkeypatch.setattr(writing._Work, "__call__", lambda self, index: made.append(index) or make(self, index))
    write_pack(dataset, plan, shard_bytes=SMALL)
    assert made == [1]


def test_each_broken_image_has_one_line_and_all_others_are_packed(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    bad = [root / "pictures" / name for name in ("0002.png", "0009.png")]
    good = [path.read_bytes() for path in bad]
    for path in bad:
        path.write_bytes(path.read_bytes()[:-40] + bytes(40))
    with pytest.raises(BrokenImagesError) as caught:
        packed(root, CROPS, tmp_path / "packs")
    assert [str(path) in line for path, line in zip(bad, caught.value.problems, strict=True)] == [True, True]
    assert "not complete" in open_packed(opened(root, CROPS), CROPS, tmp_path / "packs")[1]
    for path, content in zip(bad, good, strict=True):
        path.write_bytes(content)
    assert same(seen(opened(root, CROPS), CROPS), seen(packed(root, CROPS, tmp_path / "packs"), CROPS))


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
            raise _KilledError

        monkeypatch.setattr(writing, "_complete", stop)
        with pytest.raises(_KilledError):
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


def test_other_data_settings_or_libraries_have_another_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    name = plan_pack(dataset, CROPS, tmp_path).folder.name
    assert plan_pack(dataset, replace(CROPS, resize=21), tmp_path).folder.name != name
    assert plan_pack(replace(dataset, fingerprint="other"), CROPS, tmp_path).folder.name != name
    monkeypatch.setattr(layout, "libraries", lambda: {"pillow": "0"})
    assert plan_pack(dataset, CROPS, tmp_path).folder.name != name


def test_shrinking_enters_the_fingerprint_and_keeps_what_evaluation_sees(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data", size=(75, 50))
    plain, shrunk = opened(root, CROPS), opened(root, IMAGES["shrunk"])
    prints = {opened(root, image).fingerprint for image in (CROPS, *list(IMAGES.values())[-2:])}
    assert len(prints) == 3
    ones, others = (DecodedImages(one.splits["val"], one_image) for one, one_image in
                    ((plain, CROPS), (shrunk, IMAGES["shrunk"])))  # fmt: skip
    assert same(list(ones.chunks(4)), list(others.chunks(4)))
    assert not same(seen(plain, CROPS), seen(shrunk, IMAGES["shrunk"]))


@pytest.mark.parametrize(
    ("augment", "keeps"), [("none", True), ("crop_flip", True), ("vse_infty", False), ("xvlm", False)]
)
def test_shrinking_keeps_what_evaluation_sees_unless_that_stretches(tmp_path: Path, augment: Any, keeps: bool) -> None:
    root = write_dataset(tmp_path / "data", size=(75, 50))
    image = ImageConfig(size=16, resize=20, augment=augment)
    ones, others = (
        DecodedImages(opened(root, one).splits["val"], one) for one in (image, replace(image, shrink=image.resize))
    )
    assert same(list(ones.chunks(4)), list(others.chunks(4))) is keeps


def test_a_disk_without_room_is_refused_before_anything_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    plan = plan_pack(dataset, CROPS, tmp_path / "packs")
    sizes = estimate_bytes(dataset, plan)
    assert sizes == {"train": 8 * 40 * 30 * 3, "val": 3 * 16 * 16 * 3, "test": 3 * 16 * 16 * 3}
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(writing.shutil, "disk_usage", lambda path: usage._replace(free=sum(sizes.values()) - 1))
    with pytest.raises(DataError, match=r"GB free, but the pack takes about"):
        write_pack(dataset, plan)
    assert not list(plan.folder.glob("*.bin"))


def test_scenes_have_no_files_to_compare(tmp_path: Path) -> None:
    image = IMAGES["none"]
    dataset = open_dataset(ScenesConfig(num_train=4, num_val=2, num_test=2, image=image))
    plan = plan_pack(dataset, image, tmp_path)
    write_pack(dataset, plan)
    with_pack, _ = open_packed(dataset, image, tmp_path)
    assert same(seen(dataset, image), seen(with_pack, image))
    assert np.fromfile(plan.index("train"), layout.ROW)["file_size"].tolist() == [0] * 4
