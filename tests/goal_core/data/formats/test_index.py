"""The index of a dataset: what is read again, what is noticed, and that it never gives other data than were indexed."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import KarpathyConfig, RegionsConfig
from goal_sweep.goal_core.data.formats import opening
from goal_sweep.goal_core.data.formats.index import FileReader
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import EncodedCaptions, captions_of
from goal_sweep.goal_core.data.text import Vocabulary
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.region_files import write_regions


def karpathy(root: Path) -> KarpathyConfig:
    return KarpathyConfig(name="tiny", root=str(root), max_captions=0)


def pixels(dataset: Dataset) -> list[bytes]:
    return [split.load_image(index).tobytes() for split in dataset.splits.values() for index in range(split.num_images)]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The images that were read for their digests."""
    read, whole = list[str](), FileReader.content

    def content(self: FileReader, index: int) -> tuple[bytes, list[Any]]:
        read.append(Path(self.label(index)).name)
        return whole(self, index)

    monkeypatch.setattr(FileReader, "content", content)
    return read


def test_a_second_opening_reads_no_image_and_gives_the_same(tmp_path: Path, reads: list[str]) -> None:
    config, indexes = karpathy(write_dataset(tmp_path / "data")), tmp_path / "indexes"
    first = open_dataset(config, indexes)
    assert len(reads) == 14
    for renew in (True, False):
        again = open_dataset(config, indexes, renew=renew)
        assert len(reads) == 14
        assert again.fingerprint == first.fingerprint == open_dataset(config).fingerprint
        del reads[14:]
        assert [[*split.captions] for split in again.splits.values()] == [
            [*one.captions] for one in first.splits.values()
        ]
        assert pixels(again) == pixels(first)
        del reads[14:]


def test_a_touched_image_is_read_again_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    root = write_dataset(tmp_path / "data")
    picture = root / "pictures/0003.png"
    before = open_dataset(karpathy(root), tmp_path / "indexes")
    reads.clear()
    os.utime(picture)
    with monkeypatch.context() as patched:
        patched.delattr(opening, "_listed")  # nothing is parsed
        again = open_dataset(karpathy(root), tmp_path / "indexes")
    assert (again.fingerprint, again.notes) == (before.fingerprint, before.notes)
    assert reads == ["0003.png"]
    assert open_dataset(karpathy(root), tmp_path / "indexes").fingerprint == before.fingerprint
    assert reads == ["0003.png"]
    picture.rename(tmp_path / "moved.png")
    with pytest.raises(DataError, match=r"1 of 14 images are missing under .*: pictures/0003\.png"):
        open_dataset(karpathy(root), tmp_path / "indexes")
    picture.symlink_to(tmp_path / "moved.png")
    with pytest.raises(DataError, match=r"0003\.png is a link to .*moved\.png, outside the folder of the dataset"):
        open_dataset(karpathy(root), tmp_path / "indexes")


def test_an_edited_caption_is_seen_without_a_look_at_the_images(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    before = open_dataset(karpathy(root), tmp_path / "indexes")
    path = root / "dataset_tiny.json"
    path.write_text(path.read_text().replace("picture", "pixture", 1))
    after = open_dataset(karpathy(root), tmp_path / "indexes", renew=False)
    assert after.fingerprint != before.fingerprint


def swapped(root: Path, folder: str = "pictures") -> None:
    """Two images of train change places; their times stay."""
    first, second = root / folder / "0001.png", root / folder / "0002.png"
    times = [path.stat() for path in (first, second)]
    contents = [path.read_bytes() for path in (first, second)]
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for path, status in zip((first, second), times, strict=True):
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_images_that_are_swapped_are_refused_when_they_are_read_and_right_again_when_put_back(tmp_path: Path) -> None:
    root = write_dataset(tmp_path / "data")
    dataset = open_dataset(karpathy(root), tmp_path / "indexes")
    expected = pixels(dataset)
    swapped(root)
    with pytest.raises(ChangedDataError, match=r"0001\.png is not the one that was indexed"):
        pixels(dataset)
    with pytest.raises(ChangedDataError, match=r"0001\.png"):  # a process that starts now
        pixels(open_dataset(karpathy(root), tmp_path / "indexes", renew=False))
    assert open_dataset(karpathy(root), tmp_path / "others").fingerprint != dataset.fingerprint
    swapped(root)
    assert pixels(dataset) == expected
    assert open_dataset(karpathy(root), tmp_path / "indexes").fingerprint == dataset.fingerprint


@pytest.mark.parametrize("loss", ["gone", "cut", "linked elsewhere"])
def test_an_image_that_is_lost_meanwhile_is_named(tmp_path: Path, loss: str) -> None:
    root = write_dataset(tmp_path / "data")
    dataset, path = open_dataset(karpathy(root)), root / "pictures/0002.png"
    if loss == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    if loss == "linked elsewhere":
        path.symlink_to(root / "pictures/0005.png")
    with pytest.raises(ChangedDataError, match=r"0002\.png"):
        pixels(dataset)


def test_every_row_of_regions_is_verified(tmp_path: Path) -> None:
    config = RegionsConfig(name="tiny", root=str(write_regions(tmp_path / "data")))
    dataset = open_dataset(config, tmp_path / "indexes")
    everything = np.arange(6)
    expected = dataset.splits["train"].load_regions(everything)
    path = tmp_path / "data/train_ims.npy"
    content, times = bytearray(path.read_bytes()), path.stat()
    content[-5] ^= 1  # the last number of the last region of the last image
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (dataset.splits["train"].load_regions(everything[:5]) == expected[:5]).all()
    with pytest.raises(ChangedDataError, match=r"row 5 of .*train_ims.npy"):
        dataset.splits["train"].load_regions(everything)
    assert open_dataset(config, tmp_path / "indexes").fingerprint != dataset.fingerprint
    path.write_bytes(content[:-4000])
    with pytest.raises(ChangedDataError, match="cut short"):
        dataset.splits["train"].load_regions(everything)


def test_where_nothing_can_be_kept_the_data_open_all_the_same(tmp_path: Path) -> None:
    config = karpathy(write_dataset(tmp_path / "data"))
    (tmp_path / "indexes").write_text("not a folder")
    assert open_dataset(config, tmp_path / "indexes").fingerprint == open_dataset(config).fingerprint


def token_files(indexes: Path) -> list[Path]:
    return sorted(indexes.glob("*.tokens"))


def test_captions_are_encoded_once_a_tokenizer_and_a_damaged_cache_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config, indexes = karpathy(write_dataset(tmp_path / "data")), tmp_path / "indexes"
    split = open_dataset(config, indexes).splits["train"]
    words, everything = Vocabulary.build(split.captions, 1), np.arange(split.num_captions)
    expected = EncodedCaptions.of(split.captions, words).batch(everything)[0]
    assert (captions_of(split, words).batch(everything)[0] == expected).all()
    (path,) = token_files(indexes)
    captions_of(split, Vocabulary(("picture",)))
    captions_of(open_dataset(config, indexes).splits["val"], words)
    assert len(token_files(indexes)) == 3
    path.write_bytes(path.read_bytes()[:-1])
    assert (captions_of(split, words).batch(everything)[0] == expected).all()
    assert str(path) in capfd.readouterr().err

    def refuse(self: Vocabulary, caption: str) -> list[int]:
        raise AssertionError("a caption was encoded again")

    monkeypatch.setattr(Vocabulary, "encode", refuse)
    assert (captions_of(open_dataset(config, indexes).splits["train"], words).batch(everything)[0] == expected).all()
