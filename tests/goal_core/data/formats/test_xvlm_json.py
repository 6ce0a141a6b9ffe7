"""X-VLM's JSON files as a dataset, and one line for each way in which they can be wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.basics.errors import ConfigError, DataError
from goal_sweep.goal_core.data.config import XvlmJsonConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset

TRAIN: list[dict[str, Any]] = [
    {"image": "a/0.png", "caption": "a red thing", "image_id": 7},
    {"image": "a/1.png", "caption": "a blue thing", "image_id": "x8"},
    {"image": "a/0.png", "caption": " red again ", "image_id": 7},
]
VAL = [{"image": "a/2.png", "caption": ["one", "two"]}, {"image": "b/3.png", "caption": ["three"]}]
TEST = [{"image": "4.png", "caption": ["four", "five", "six"]}]


def written(root: Path, **files: Any) -> Path:
    for name, content in {"train": TRAIN, "val": VAL, "test": TEST, **files}.items():
        (root / f"t_{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    for name in ("a/0.png", "a/1.png", "a/2.png", "b/3.png", "4.png"):
        path = root / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((9, 12, 3), int(path.stem), dtype=np.uint8)).save(path)
    return root


def config(root: Path, **settings: Any) -> XvlmJsonConfig:
    files = {"train_files": ("t_train.json",), "val_file": "t_val.json", "test_file": "t_test.json"}
    return XvlmJsonConfig(name="tiny", root=str(root), **{"image_root": "pictures", **files, **settings})


def test_pairs_come_together_by_image(tmp_path: Path) -> None:
    dataset = open_dataset(config(written(tmp_path)))
    train = dataset.splits["train"]
    assert list(train.captions) == ["a red thing", "red again", "a blue thing"]
    assert train.caption_image.tolist() == [0, 0, 1]
    assert dataset.splits["val"].caption_image.tolist() == [0, 0, 1]
    assert (dataset.splits["val"].load_image(1) == 3).all()
    assert list(dataset.splits["test"].captions) == ["four", "five", "six"]
    fewer = open_dataset(config(tmp_path, max_val_images=1))
    assert list(fewer.splits["val"].captions) == ["one", "two"]
    assert fewer.fingerprint != dataset.fingerprint == open_dataset(config(tmp_path, min_word_count=4)).fingerprint


def test_several_train_files_are_one_split(tmp_path: Path) -> None:
    written(tmp_path, train=TRAIN[:1], more=TRAIN[1:])
    both = open_dataset(config(tmp_path, train_files=("t_train.json", "t_more.json")))
    assert list(both.splits["train"].captions) == ["a red thing", "red again", "a blue thing"]
    twice = open_dataset(config(tmp_path, train_files=("t_train.json", "t_more.json", "./t_more.json")))
    assert both.notes == []
    assert [note.partition(" ")[0] for note in twice.notes] == ["data.train_files", "captions"]
    with pytest.raises(ConfigError, match="train_files must name at least one file"):
        config(tmp_path, train_files=())


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": "[{"}, "t_train.json is not valid JSON"),
        ({"val": {"images": []}}, "t_val.json must be a list of records"),
        ({"train": ["x"]}, r"t_train.json\[0\] must be an object, got 'x'"),
        ({"train": [{"image": "a/0.png"}]}, r"t_train.json\[0\]\.caption must be a caption"),
        ({"val": [{"image": "a/2.png", "caption": []}]}, r"t_val.json\[0\]\.caption holds no caption"),
        ({"val": [{"image": "a/2.png", "caption": ["a", 3]}]}, r"\[0\]\.caption\[1\] must be a caption .*got 3"),
        ({"test": [{"image": "../4.png", "caption": ["a"]}]}, r"\[0\]\.image must be the path of a file below"),
        ({"test": [VAL[0]]}, "image a/2.png is listed twice, in val and test"),
        ({"test": [{"image": "b/9.png", "caption": ["a"]}]}, "images are missing under .*: b/9.png"),
    ],
)
def test_malformed_files_give_one_line(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        open_dataset(config(written(tmp_path, **files)))
    assert "\n" not in str(caught.value)
