"""A pack has the pixels of the files, and is named by all that they depend on."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from goal_sweep.goal_core.data import packs as packing
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import DecodedImages
from goal_sweep.goal_core.data.packs import plan_pack, write_pack
from goal_sweep.goal_core.training.train import train_unit
from tests.helpers.karpathy_fixture import write_dataset
from tests.helpers.packs import CROPS, IMAGES, opened, packed, same, seen
from tests.helpers.training_cases import DATA, FROZEN, folders_of, same_weights, unit_of

# Python 3.12 warns when a process with threads forks, which torch's worker processes do.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")


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


def test_other_data_settings_or_libraries_have_another_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = opened(write_dataset(tmp_path / "data"), CROPS)
    name = plan_pack(dataset, CROPS, tmp_path).folder.name
    assert plan_pack(dataset, replace(CROPS, resize=21), tmp_path).folder.name != name
    assert plan_pack(replace(dataset, fingerprint="other"), CROPS, tmp_path).folder.name != name
    monkeypatch.setattr(packing, "libraries", lambda: {"pillow": "0"})
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
