from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import RegionsConfig
from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
from tests.helpers.region_files import regions, write_regions


def opened(root: Path, **settings: Any) -> Dataset:
    return open_dataset(RegionsConfig(name="tiny", root=str(root), **settings))


def refuse(root: Path, message: str, **settings: Any) -> None:
    with pytest.raises(DataError, match=message) as caught:
        opened(root, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ids_per", ["image", "caption"])
@pytest.mark.parametrize("folder", ["", "precomp"])
def test_regions_captions_and_ids_are_read(tmp_path: Path, ids_per: str, folder: str) -> None:
    write_regions(tmp_path / folder, ids_per=ids_per)
    splits = opened(tmp_path).splits
    assert [(name, split.num_images, split.num_captions) for name, split in splits.items()] == [
        ("train", 6, 30),
        ("val", 3, 15),
        ("test", 3, 15),
    ]
    assert splits["val"].captions[5] == "A picture of thing 7 said in way 0."
    assert splits["val"].reader.label(1).startswith("image 107 (row 1 of ")
    assert splits["train"].region_shape == (4, 8)
    taken = splits["train"].load_regions(np.array([4, 0, 4]))
    assert taken.dtype == np.float32
    assert np.array_equal(taken, regions("train")[[4, 0, 4]])


def test_captions_may_hold_signs_that_look_like_line_ends(tmp_path: Path) -> None:
    write_regions(tmp_path, captions=1)
    (tmp_path / "dev_caps.txt").write_text("one\u2028thing\r\ntwo\x0bthings\nthree\n", newline="", encoding="utf-8")
    assert list(opened(tmp_path).splits["val"].captions) == ["one\u2028thing", "two\x0bthings", "three"]


def cut(name: str, size: int) -> Callable[[Path], Any]:
    return lambda root: (root / name).write_bytes((root / name).read_bytes()[:size])


def lines(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], Any]:
    def apply(root: Path) -> None:
        (root / name).write_text("".join(f"{line}\n" for line in change((root / name).read_text().splitlines())))

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "dev_ims.npy").unlink(), r"dev_ims\.npy is missing"),
        (lambda root: (root / "dev_ids.txt").unlink(), r"dev_ids\.txt is missing"),
        (cut("test_ims.npy", 300), r"test_ims\.npy is cut short: 300 bytes"),
        (cut("test_ims.npy", 40), r"test_ims\.npy is not an \.npy file, or is cut short"),
        (lambda root: (root / "test_ims.npy").open("ab").write(b"x"), r"test_ims\.npy is longer than its header says"),
        (
            lambda root: np.save(root / "dev_ims.npy", np.zeros((3, 8))),
            r"must have shape \(images, regions, features\)",
        ),
        (lambda root: np.save(root / "dev_ims.npy", np.zeros((3, 4, 8), int)), r"must contain floating point numbers"),
        (lambda root: np.save(root / "dev_ims.npy", np.zeros((3, 4, 9))), r"dev_ims\.npy has features of 9 numbers"),
        (lines("train_caps.txt", lambda rows: rows[:-1]), r"train_caps\.txt has 29 captions, .* of the 6 images"),
        (lines("train_caps.txt", lambda rows: [*rows[:3], " ", *rows[4:]]), r"line 4 of .*train_caps\.txt is empty"),
        (cut("train_caps.txt", 0), r"train_caps\.txt is empty"),
        (lambda root: (root / "dev_caps.txt").write_bytes(b"a\xff\n"), r"dev_caps\.txt:1 is not UTF-8 text"),
        (
            lines("train_ids.txt", lambda rows: rows[:-1]),
            r"train_ims\.npy has 6 rows, but must have one for each of the 5 images or for each of the 30 captions",
        ),
        (lines("train_ids.txt", lambda rows: [*rows[:5], rows[1]]), r"image 101 is listed twice in .*train_ids\.txt"),
    ],
)
def test_damaged_files_give_one_line(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    damage(write_regions(tmp_path))
    refuse(tmp_path, message)


def test_a_region_that_is_not_finite_names_its_image(tmp_path: Path) -> None:
    write_regions(tmp_path)
    broken = regions("dev")
    broken[1, 2, 3] = np.nan
    np.save(tmp_path / "dev_ims.npy", broken)
    refuse(tmp_path, r"regions of image 107 \(row 1 of .*dev_ims\.npy\) are not finite")
    np.save(tmp_path / "dev_ims.npy", np.zeros_like(broken))  # as where a picture has fewer regions
    assert opened(tmp_path).splits["val"].num_images == 3


def test_an_image_in_two_splits_is_told_by_its_regions_and_not_by_its_id_alone(tmp_path: Path) -> None:
    write_regions(tmp_path)
    (tmp_path / "dev_ids.txt").write_text("100\n107\n108\n")
    open_dataset(RegionsConfig(name="tiny", root=str(tmp_path)))  # ids that begin anew in each split
    both = np.load(tmp_path / "dev_ims.npy")
    both[0] = np.load(tmp_path / "train_ims.npy")[0]
    np.save(tmp_path / "dev_ims.npy", both)
    with pytest.raises(DataError, match="image 100 is in two splits, train and val, with the same features"):
        open_dataset(RegionsConfig(name="tiny", root=str(tmp_path)))
    report = check_data(RegionsConfig(name="tiny", root=str(tmp_path)))
    assert [finding.item for finding in report.findings if finding.state != "ok"] == ["features"]


def test_the_fingerprint_sees_features_and_captions_and_no_names(tmp_path: Path) -> None:
    def fingerprint() -> str:
        return opened(tmp_path).fingerprint

    write_regions(tmp_path)
    seen = [fingerprint()]
    changed = regions("test")
    changed[1, 0, 0] += 1e-3
    np.save(tmp_path / "test_ims.npy", changed)
    seen.append(fingerprint())
    lines("dev_caps.txt", lambda rows: ["Something else.", *rows[1:]])(tmp_path)
    seen.append(fingerprint())
    lines("dev_ids.txt", lambda rows: ["7", *rows[1:]])(tmp_path)
    seen += [
        fingerprint(),
        opened(tmp_path, max_val_images=1).fingerprint,
        opened(tmp_path, min_word_count=1).fingerprint,
    ]
    assert len(set(seen)) == 5
    assert seen[3] == seen[2]  # ids name the images to people
    assert opened(write_regions(tmp_path / "moved")).fingerprint == seen[0]


@pytest.mark.parametrize("transposed", [True, False])
def test_features_that_are_stored_column_by_column_are_the_same_data(tmp_path: Path, transposed: bool) -> None:
    write_regions(root := tmp_path)
    expected, rows = opened(root), np.array([2, 0, 1])
    loaded = {name: split.load_regions(rows) for name, split in expected.splits.items()}
    for path in root.glob("*_ims.npy"):
        stored = np.load(path)
        np.save(path, stored.T.copy().T if transposed else np.asfortranarray(stored))
        assert np.load(path).flags.f_contiguous
    found = opened(root)
    assert found.fingerprint == expected.fingerprint
    for name, split in found.splits.items():
        assert (split.load_regions(rows) == loaded[name]).all()
