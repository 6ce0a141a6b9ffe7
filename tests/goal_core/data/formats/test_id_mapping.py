import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from goal_sweep.goal_core.basics.errors import DataError
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import IdMappedConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from tests.helpers.region_files import write_id_mapped


def mapped(root: Path, **settings: Any) -> Dataset:
    return open_dataset(IdMappedConfig(name="tiny", root=str(root), **settings))


@pytest.mark.parametrize("ids_per", ["image", "caption"])
def test_the_mapping_gives_the_image_of_each_id(tmp_path: Path, ids_per: str) -> None:
    dataset = mapped(write_id_mapped(tmp_path, ids_per=ids_per), max_val_images=2)
    assert [(split.num_images, split.num_captions) for split in dataset.splits.values()] == [(6, 30), (2, 10), (3, 15)]
    assert dataset.splits["test"].load_image(1)[0, 0].tolist() == [10] * 3  # images 0-5 train, 6-8 dev
    assert re.fullmatch(r"[0-9a-f]{16}", dataset.fingerprint)


def change_mapping(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], Any]:
    def apply(root: Path) -> None:
        stored = json.loads((root / "id_mapping.json").read_text())
        change(stored)
        (root / "id_mapping.json").write_text(json.dumps(stored))

    return apply


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "id_mapping.json").write_text("{"), r"id_mapping\.json is not valid JSON"),
        (lambda root: (root / "id_mapping.json").write_text('{"1": "a", "1": "b"}'), "the key '1' stands twice"),
        (lambda root: (root / "id_mapping.json").write_text("[]"), r"must be an object from image ids to file names"),
        (change_mapping(lambda stored: stored.update({"103": "../up.png"})), r"id_mapping\.json: .* id 103 must"),
        (
            change_mapping(lambda stored: stored.update({"110": stored["101"]})),
            r"image train2014/0001\.png is listed twice, in train and test",
        ),
        (
            lambda root: (root / "images/train2014/0004.png").unlink(),
            r"1 of 12 images are missing under .*: train2014/0004\.png",
        ),
    ],
)
def test_a_damaged_tree_gives_one_line(tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    damage(write_id_mapped(tmp_path))
    with pytest.raises(DataError, match=message) as caught:
        mapped(tmp_path)
    assert "\n" not in str(caught.value)
