import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import listening
from goal_sweep.goal_core.data import DataReport, published_counts
from goal_sweep.goal_core.data.config import KarpathyConfig, RegionsConfig, ScenesConfig
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.region_files import write_regions


def karpathy(root: Path, *, name: str = "tiny", quick: bool = False, **settings: Any) -> DataReport:
    return check_data(KarpathyConfig(name=name, root=str(root), **settings), quick=quick)


def bad(report: DataReport) -> list[tuple[str, str]]:
    return [(finding.state, finding.found) for finding in report.findings if finding.state != "ok"]


def test_a_whole_image_set_is_complete(tmp_path: Path) -> None:
    report = karpathy(write_dataset(tmp_path))
    assert report.complete
    found = {finding.item: finding.found for finding in report.findings}
    assert found["train"] == "8 images, 40 captions"
    assert found["pictures/"].startswith("14 files in ")
    assert found["content"] == "all read, 14"


def test_every_unreadable_image_is_named_and_quick_does_not_look(tmp_path: Path) -> None:
    root = write_dataset(tmp_path)
    (root / "pictures/0003.png").write_bytes((root / "pictures/0003.png").read_bytes()[:200])
    (root / "pictures/0012.png").write_bytes(b"not a picture")
    report = karpathy(root)
    assert not report.complete
    assert [state for state, _ in bad(report)] == ["wrong", "wrong"]
    assert "cannot read image" in bad(report)[0][1]
    assert "0003.png" in bad(report)[0][1]
    assert "0012.png" in bad(report)[1][1]
    quick = karpathy(root, quick=True)
    assert quick.complete
    assert quick.findings[-1].found == "not read (--quick)"


def test_all_problems_of_an_image_set_are_found_together(tmp_path: Path) -> None:
    root = write_dataset(tmp_path)
    (root / "pictures/0001.png").unlink()
    (root / "pictures/0002.png").unlink()
    report = karpathy(root, name="f30k", max_captions=4)
    missing = [finding for finding in report.findings if finding.state == "missing"]
    assert "2 of 14 images are missing under" in missing[0].found
    counted = {finding.item: finding for finding in report.findings if finding.state == "wrong"}
    assert counted["train"].found == "8 images, 32 captions"
    assert counted["train"].published == "29,000 images, 116,000 captions"


@pytest.mark.parametrize("count", [1, 2, 3])
def test_pictures_of_twelve_bits_are_said_when_they_are_read(tmp_path: Path, count: int) -> None:
    root = write_dataset(tmp_path)
    for number in range(1, count + 1):
        Image.fromarray(np.full((8, 8), 4_000 + number, np.uint16)).save(root / f"pictures/000{number}.png")
    config, lines = KarpathyConfig(name="tiny", root=str(root)), list[str]()
    with listening(lines.append):
        (said,) = [one.found for one in check_data(config).findings if "16 bits" in one.found]
        assert not lines
        open_dataset(config)
    assert lines == [said]
    assert said.startswith(f"{count} images of 16 bits")


def test_what_is_not_used_and_what_is_there_twice_is_counted(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    shutil.copy(root / "pictures/0001.png", root / "pictures/0002.png")
    shutil.copy(root / "pictures/0001.png", root / "pictures/0009.png")
    config = KarpathyConfig(name="tiny", root=str(root), max_captions=2, max_val_images=2)
    notes = [
        "images beyond the first 2 (data.max_val_images), which are not used: val 1",
        "captions beyond the first 2 (data.max_captions), which are not used: train 24, val 9, test 9",
        "2 images have the same bytes as another one (captions of one picture belong in one row); 1 are in two splits",
        "8 of 23 different words of train and val occur fewer than 4 times (min_word_count), 16 times in all, and "
        "become <unk>",
    ]
    report = check_data(config)
    assert report.complete
    assert [one.found for one in report.findings if one.item == "used"] == notes
    for _ in range(2):  # made, and kept
        found = open_dataset(config, tmp_path / "indexes")
        assert [*found.notes, *found.word_notes] == notes
    assert not open_dataset(replace(config, min_word_count=1), tmp_path / "indexes").word_notes
    assert [one.found for one in check_data(config, words=False).findings if one.item == "used"] == notes[:3]
    plain = KarpathyConfig(name="tiny", root=str(write_dataset(tmp_path / "plain")), min_word_count=1)
    assert not open_dataset(plain).notes


def check_regions(root: Path, *, name: str = "tiny", **settings: Any) -> DataReport:
    return check_data(RegionsConfig(name=name, root=str(root), **settings))


def test_whole_region_files_are_complete_and_their_shapes_are_told(tmp_path: Path) -> None:
    report = check_regions(write_regions(tmp_path, ids_per="caption"))
    assert report.complete
    found = {finding.item: finding.found for finding in report.findings}
    assert found["train"] == "6 images, 30 captions"
    assert found["train features"] == "shape (6, 4, 8), float32"
    assert found["content"] == "all read, 12"


def truncated(root: Path) -> None:
    (root / "train_ims.npy").write_bytes((root / "train_ims.npy").read_bytes()[:400])


def test_all_problems_of_region_files_are_found_together(tmp_path: Path) -> None:
    write_regions(tmp_path)
    truncated(tmp_path)
    (tmp_path / "dev_ids.txt").unlink()
    (tmp_path / "test_caps.txt").write_text("one\ntwo\n")
    states = bad(check_regions(tmp_path))
    assert [state for state, _ in states] == ["wrong", "missing", "wrong"]
    parts = ("train_ims.npy is cut short", "dev_ids.txt is missing", "not a multiple of")
    for (_, found), words in zip(states, parts, strict=True):
        assert words in found


def test_published_counts_follow_the_settings() -> None:
    coco = published_counts(KarpathyConfig(name="coco", root="x"))
    assert [(split.images, split.captions) for split in coco.values()] == [
        (113_287, 566_435),
        (5_000, 25_000),
        (5_000, 25_000),
    ]
    limited = published_counts(KarpathyConfig(name="f30k", root="x", max_captions=2, max_val_images=1000))
    assert [(split.images, split.captions) for split in limited.values()] == [
        (29_000, 58_000),
        (1_000, 2_000),
        (1_000, 2_000),
    ]
    assert published_counts(KarpathyConfig(name="emoji", root="x")) == {}
    assert "test" not in published_counts(RegionsConfig(name="coco", root="x"))
    assert published_counts(RegionsConfig(name="coco", root="x", test_file="testall"))["test"].images == 5_000
    everything = published_counts(KarpathyConfig(name="f30k", root="x", max_captions=0, max_val_images=10))
    assert [(split.images, split.captions) for split in everything.values()] == [
        (29_000, 145_000),
        (10, 50),
        (1_000, 5_000),
    ]
    assert published_counts(KarpathyConfig(name="coco", root="x", max_captions=0)) == {}
    assert published_counts(ScenesConfig(name="coco")) == {}
