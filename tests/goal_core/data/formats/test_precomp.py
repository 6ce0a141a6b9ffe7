import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import ConfigError, DataError, MissingDataError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import PrecompConfig
from goal_sweep.goal_core.data.formats import layout
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from tests.helpers.vector_files import vectors, write_vectors


def opened(root: Path | str, **settings: Any) -> Dataset:
    return open_dataset(PrecompConfig(name="tiny", root=str(root), **settings))


def refuse(root: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        opened(root)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("captions", [1, 2, 5])
def test_one_row_per_image_or_per_caption_gives_the_same_dataset(tmp_path: Path, captions: int, repeat: bool) -> None:
    dataset = opened(write_vectors(tmp_path / "a", captions=captions, repeat=repeat))
    assert [(split.num_images, split.num_captions) for split in dataset.splits.values()] == [
        (6, 6 * captions),
        (3, 3 * captions),
        (3, 3 * captions),
    ]
    val = dataset.splits["val"]
    assert val.captions[captions] == "A picture of dev 1 said in way 0."
    assert val.region_shape == (8,)
    taken = val.load_regions(np.array([2, 0]))
    assert taken.dtype == np.float32
    assert np.array_equal(taken, vectors("dev")[[2, 0]])
    assert dataset.fingerprint == opened(write_vectors(tmp_path / "b", captions=captions)).fingerprint


def test_ids_per_caption_allow_a_different_number_of_captions_for_each_image(tmp_path: Path) -> None:
    write_vectors(tmp_path, captions=1)
    (tmp_path / "dev_caps.txt").write_text("one\ntwo\nthree\nfour\n")
    (tmp_path / "dev_ids.txt").write_text("a\nb\nb\nc\n")
    val = opened(tmp_path).splits["val"]
    assert val.caption_image.tolist() == [0, 1, 1, 2]
    assert val.reader.label(1) == f"image b (row 1 of {tmp_path / 'dev_ims.npy'})"


@pytest.mark.parametrize("images", [(0, 1, 1, 2, 3, 4), (0, 0, 0, 1, 2, 3)])
def test_equal_neighbours_are_images_of_five_captions_as_in_vsepp(tmp_path: Path, images: tuple[int, ...]) -> None:
    write_vectors(tmp_path, repeat=True)
    np.save(tmp_path / "train_ims.npy", vectors("train")[list(images)].repeat(5, axis=0))
    train = opened(tmp_path).splits["train"]
    assert train.caption_image.tolist() == [image for image in range(6) for _ in range(5)]
    assert np.array_equal(train.load_regions(np.arange(6)), vectors("train")[list(images)])


@pytest.mark.parametrize("repeats", [(2, 1, 3), (1, 2, 1), (2, 4, 2)])
def test_a_row_per_caption_with_different_numbers_needs_ids(tmp_path: Path, repeats: tuple[int, ...]) -> None:
    write_vectors(tmp_path, captions=1)
    rows, names = vectors("dev").repeat(repeats, axis=0), np.array(["a", "b", "c"]).repeat(repeats)
    np.save(tmp_path / "dev_ims.npy", rows)
    (tmp_path / "dev_caps.txt").write_text("".join(f"caption {line}\n" for line in range(len(rows))))
    refuse(tmp_path, r"rows repeat . to . times; .* only ids can tell: give the image's id .* in .*dev_ids\.txt")

    (tmp_path / "dev_ids.txt").write_text("".join(f"{name}\n" for name in names))
    val = opened(tmp_path).splits["val"]
    assert val.caption_image.tolist() == np.arange(3).repeat(repeats).tolist()
    assert np.array_equal(val.load_regions(np.arange(3)), vectors("dev"))
    assert val.reader.label(2) == f"image c (row {repeats[0] + repeats[1]} of {tmp_path / 'dev_ims.npy'})"
    assert np.array_equal(
        opened(tmp_path, max_val_images=2).splits["val"].load_regions(np.array([1])), vectors("dev")[1:2]
    )

    np.save(tmp_path / "dev_ims.npy", vectors("dev"))
    assert opened(tmp_path).splits["val"].caption_image.tolist() == val.caption_image.tolist()
    rows[repeats[0] + repeats[1] - 1, 0] += 1
    if repeats[1] > 1:
        np.save(tmp_path / "dev_ims.npy", rows)
        refuse(tmp_path, r"rows \d to \d of .*dev_ims\.npy belong to the . captions of one image, but are not equal")


def test_text_files_may_be_compressed(tmp_path: Path) -> None:
    plain = opened(write_vectors(tmp_path)).fingerprint
    path = tmp_path / "train_caps.txt"
    packed = tmp_path / "train_caps.txt.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    assert opened(tmp_path).fingerprint == plain
    packed.write_bytes(packed.read_bytes()[:40])
    refuse(tmp_path, r"cannot read .*train_caps\.txt\.gz: ")


def test_captions_can_be_fewer_and_shorter(tmp_path: Path) -> None:
    dataset = opened(write_vectors(tmp_path), max_captions=2, max_words=5)
    train = dataset.splits["train"]
    whole = opened(tmp_path, max_captions=2).splits["train"].captions
    words = sum(len(caption.split()[5:]) for caption in whole)
    for limit, left_out in (("captions beyond the first 2", 18), ("words beyond the first 5", words)):
        (note,) = (note for note in dataset.notes if note.startswith(limit))
        assert f"), which are not used: train {left_out}, " in note
    assert train.captions[1:3] == ["A picture of train 0", "A picture of train 1"]
    assert train.caption_image.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    with pytest.raises(ConfigError, match="max_words must be at least 0"):
        PrecompConfig(name="tiny", root="x", max_words=-1)


def test_rows_that_do_not_fit_the_captions_are_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path)
    np.save(tmp_path / "dev_ims.npy", vectors("train")[:4])
    refuse(tmp_path, r"dev_caps\.txt has 15 captions, not a multiple of the 4 images")


def test_shipped_datasets_are_named_where_there_is_none() -> None:
    with pytest.raises(MissingDataError, match="no dataset 'shipped:nothing' ships with goal-sweep; there is"):
        opened("shipped:nothing")


def test_two_installations_with_one_folder_of_indexes_each_read_their_own_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for installation in ("one", "two"):
        folder = write_vectors(tmp_path / installation / "toy")
        monkeypatch.setattr(layout, "SHIPPED_FOLDER", folder.parent)
        reader = open_dataset(PrecompConfig(name="toy", root="shipped:toy"), tmp_path / "indexes").splits["test"].reader
        assert reader.file.path.startswith(str(folder))  # type: ignore[union-attr]  # features have a file


def test_the_shipped_emoji_vectors_are_complete_small_and_white() -> None:
    report = check_data(PrecompConfig(name="emoji", root="shipped:emoji_precomp"))
    assert report.complete, report
    splits = opened("shipped:emoji_precomp").splits
    counts = {name: (split.num_images, split.num_captions) for name, split in splits.items()}
    assert counts == {"train": (2586, 12930), "val": (400, 2000), "test": (800, 4000)}
    train = splits["train"].load_regions(np.arange(2586))
    assert train.shape == (2586, 128)
    assert np.allclose(np.cov(train, rowvar=False), np.eye(128), atol=5e-3)
    folder = Path(splits["train"].reader.file.path).parent  # type: ignore[union-attr]  # features have a file
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_500_000
    assert (folder / "LICENSES.md").is_file()


@pytest.mark.parametrize("name", ["train_caps.txt", "dev_caps.txt", "train_caps.txt.gz"])
def test_captions_in_two_folders_are_refused(tmp_path: Path, name: str) -> None:
    write_vectors(tmp_path / "precomp")
    assert opened(tmp_path).splits["val"].num_images == 3
    (tmp_path / name).write_bytes(b"older")
    refuse(tmp_path, r"and .*/precomp both hold \*_caps\.txt\*; delete or move")
