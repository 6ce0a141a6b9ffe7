import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import Dataset, ImageConfig
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.text import Vocabulary
from tests.helpers.karpathy_fixture import tiny_annotations, write_dataset


def opened(root: Path, **settings: Any) -> Dataset:
    return open_dataset(KarpathyConfig(name="tiny", root=str(root), **settings))


def test_splits_hold_the_images_and_captions_of_the_file_in_its_order(tmp_path: Path) -> None:
    dataset = opened(write_dataset(tmp_path))
    assert list(dataset.splits) == ["train", "val", "test"]
    assert {name: split.num_images for name, split in dataset.splits.items()} == {"train": 8, "val": 3, "test": 3}
    val = dataset.splits["val"]
    assert val.captions[0] == "A yellow picture, number 8 said in way 0."
    assert val.caption_image.dtype == np.int64
    assert val.caption_image.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    pixels = val.load_image(1)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (30, 40, 3)
    assert np.array_equal(pixels, np.random.default_rng(9).integers(0, 256, (30, 40, 3), dtype=np.uint8))


def test_restval_trains_in_file_order(tmp_path: Path) -> None:
    content = tiny_annotations({"restval": 1, "test": 1, "train": 1, "val": 1}, captions=1)
    train = opened(write_dataset(tmp_path, content)).splits["train"]
    assert [re.findall(r"number (\d)", caption) for caption in train.captions] == [["0"], ["2"]]


def test_captions_per_image_may_vary_and_are_limited(tmp_path: Path) -> None:
    content = tiny_annotations({"train": 3, "val": 1, "test": 1}, captions=7)
    del content["images"][1]["sentences"][2:]
    root = write_dataset(tmp_path, content)
    assert opened(root).splits["train"].caption_image.tolist() == [0] * 5 + [1] * 2 + [2] * 5
    assert opened(root, max_captions=1).splits["train"].caption_image.tolist() == [0, 1, 2]
    assert opened(root, max_captions=0).splits["train"].caption_image.tolist() == [0] * 7 + [1] * 2 + [2] * 7


def test_max_val_images_keeps_the_first_and_leaves_the_other_splits(tmp_path: Path) -> None:
    root = write_dataset(tmp_path)
    (root / "pictures" / "0010.png").unlink()  # the third val image, which is not used
    dataset = opened(root, max_val_images=2)
    assert [split.num_images for split in dataset.splits.values()] == [8, 2, 3]
    assert dataset.splits["val"].captions[-1] == "A grey picture, number 9 said in way 4."


def test_tokens_stand_in_for_a_missing_raw_text(tmp_path: Path) -> None:
    content = tiny_annotations(captions=1)
    content["images"][0]["sentences"] = [{"tokens": ["two", "words"]}, {"raw": None, "tokens": ["three"]}]
    assert opened(write_dataset(tmp_path, content)).splits["train"].captions[:2] == ["two words", "three"]


@pytest.mark.parametrize("place", ["images", "flickr30k-images", "flickr30k_images", ""])
def test_images_without_filepath_are_found_in_the_documented_places(tmp_path: Path, place: str) -> None:
    root = write_dataset(tmp_path, tiny_annotations(folder=None), place=place)
    assert opened(root).splits["test"].load_image(0).shape == (30, 40, 3)


@pytest.mark.parametrize("place", ["images", "flickr30k-images", "flickr30k_images"])
def test_images_in_two_places_must_be_equal(tmp_path: Path, place: str) -> None:
    root = write_dataset(tmp_path, tiny_annotations(folder=None))
    expected = opened(root).fingerprint
    assert opened(write_dataset(root, tiny_annotations(folder=None), place=place)).fingerprint == expected
    (root / "0002.png").write_bytes((root / "0003.png").read_bytes())
    refuse(root, rf"{place}/0002.png and .*/0002.png differ; delete or move one")


@pytest.mark.parametrize("place", ["", "images"])
def test_folders_of_coco_are_found_at_the_root_or_in_images(tmp_path: Path, place: str) -> None:
    content = tiny_annotations(folder="train2014")
    for image in content["images"][8:]:
        image["filepath"] = "val2014"
    dataset = opened(write_dataset(tmp_path, content, place=place))
    assert dataset.splits["val"].reader.label(0) == str(tmp_path / place / "val2014" / "0008.png")


def test_a_file_name_may_hold_its_folder(tmp_path: Path) -> None:
    content = tiny_annotations(folder=None)
    for image in content["images"]:
        image["filename"] = "./sub/" + image["filename"]
    assert opened(write_dataset(tmp_path, content)).splits["train"].load_image(0).shape == (30, 40, 3)


def test_the_annotation_file_can_be_named(tmp_path: Path) -> None:
    write_dataset(tmp_path, name="dataset_a.json")
    write_dataset(tmp_path, tiny_annotations(captions=1), name="other.json")
    assert opened(tmp_path).splits["val"].num_captions == 15
    assert opened(tmp_path, annotations="other.json").splits["val"].num_captions == 3


def refuse(root: Path, message: str, **settings: Any) -> None:
    with pytest.raises(DataError, match=message) as caught:
        opened(root, **settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"dataset_x\.json is not valid JSON: .*line 1"),
        ("\udcff", r"dataset_x\.json:1 is not UTF-8 text; save it as UTF-8"),
        ("[" * 100_000, r"dataset_x\.json is not valid JSON"),
        ('{"images": {}}', r"must be an object with a list 'images'"),
        ('{"images": [3]}', r"images\[0\] must be an object, got 3"),
    ],
)
def test_files_that_are_no_annotations(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dataset_x.json").write_bytes(text.encode(errors="surrogateescape"))
    refuse(tmp_path, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"filename": None}, r"images\[2\]\.filename must .* got None"),
        ({"filename": "/etc/hostname", "filepath": ""}, r"images\[2\]\.filename must .* got '/etc/hostname'"),
        ({"filepath": "../up"}, r"images\[2\]\.filepath must .* got '\.\./up/0002\.png'"),
        ({"split": "trian"}, r"images\[2\]\.split must be one of .* got 'trian' \(did you mean 'train'\?\)"),
        ({"captions": ["a"], "sentences": ...}, r"images\[2\]\.sentences holds no caption"),
        ({"sentences": []}, r"images\[2\]\.sentences holds no caption"),
        ({"sentences": [{"raw": "a"}, {"raw": 5}]}, r"images\[2\]\.sentences\[1\] must be a caption .*got 5"),
        ({"sentences": [{"raw": "  "}]}, r"images\[2\]\.sentences\[0\] must be a caption"),
    ],
)
def test_a_record_of_the_wrong_layout_says_which_key(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    content = tiny_annotations()
    root = write_dataset(tmp_path, content)
    content["images"][2].update(change)
    content["images"][2] = {key: value for key, value in content["images"][2].items() if value is not ...}
    (root / "dataset_tiny.json").write_text(json.dumps(content))
    refuse(root, message)


def test_missing_files_are_counted_and_a_few_are_named(tmp_path: Path) -> None:
    root = write_dataset(tmp_path)
    for number in (1, 3, 5, 7, 12):
        (root / "pictures" / f"{number:04d}.png").unlink()
    (root / "pictures" / "0001.png").mkdir()  # a folder is no file
    refuse(
        root, r"5 of 14 images are missing under .*: pictures/0001\.png, pictures/0003\.png, pictures/0005\.png, \.\.\."
    )


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_the_fingerprint_ignores_paths_names_and_key_order(tmp_path: Path) -> None:
    one = opened(write_dataset(tmp_path / "one"))
    two = opened(
        write_dataset(tmp_path / "two", reversed_keys(tiny_annotations()), place="images", name="dataset_b.json")
    )
    assert re.fullmatch(r"[0-9a-f]{16}", one.fingerprint)
    assert one.fingerprint == two.fingerprint


def test_the_fingerprint_sees_all_that_a_model_sees(tmp_path: Path) -> None:
    content = tiny_annotations()
    root = write_dataset(tmp_path, content)

    def rewritten(change: Any) -> str:
        changed = copy.deepcopy(content)
        change(changed["images"])
        (root / "dataset_tiny.json").write_text(json.dumps(changed))
        return opened(root).fingerprint

    prints = [
        rewritten(lambda images: None),
        rewritten(lambda images: images[0]["sentences"][0].update(raw="something else")),
        rewritten(lambda images: images[0].update(split="val")),
        rewritten(lambda images: images.reverse()),
        rewritten(lambda images: images.pop()),
        opened(root, max_captions=4).fingerprint,
        opened(root, max_val_images=1).fingerprint,
        opened(root, min_word_count=1).fingerprint,
        opened(root, image=ImageConfig(size=200)).fingerprint,
        opened(root, image=ImageConfig(augment="none")).fingerprint,
    ]
    write_dataset(root, content)
    assert opened(root).fingerprint == prints[0]
    write_dataset(root, content, size=(41, 30))
    assert len({*prints, opened(root).fingerprint}) == len(prints) + 1
    assert rewritten(lambda images: images[6].update(split="train")) == opened(root).fingerprint  # it was restval


def test_legacy_vocabulary_counts_every_caption_of_the_file(tmp_path: Path) -> None:
    content = tiny_annotations(captions=7)
    content["images"][-1]["sentences"][6] = {"raw": "zebra zebra zebra zebra"}  # a test caption that is not even used
    write_dataset(tmp_path, content)
    config = KarpathyConfig(name="tiny", root=str(tmp_path))
    ours, legacy = open_dataset(config), open_dataset(replace(config, vocabulary="legacy"))
    assert len(list(ours.vocabulary_captions)) == 5 * 11
    assert len(list(legacy.vocabulary_captions)) == 7 * 14
    assert "zebra" in Vocabulary.build(legacy.vocabulary_captions, 4).words
    assert "zebra" not in Vocabulary.build(ours.vocabulary_captions, 4).words
    assert legacy.fingerprint != ours.fingerprint
    assert [split.num_captions for split in legacy.splits.values()] == [s.num_captions for s in ours.splits.values()]
