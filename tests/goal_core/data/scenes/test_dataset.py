from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from goal_sweep.goal_core.data import Dataset, ImageConfig, Split
from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.scenes import dataset as scenes
from goal_sweep.goal_core.data.scenes import scene as scene_contents
from goal_sweep.goal_core.data.scenes.dataset import SceneReader
from goal_sweep.goal_core.data.scenes.scene import Scene
from goal_sweep.goal_core.data.text.vocabulary import Vocabulary
from tests.helpers.paths import ROOT

SMALL = ScenesConfig(num_train=60, num_val=20, num_test=20)


@pytest.fixture(scope="module")
def small() -> Dataset:
    return open_dataset(SMALL)


def scenes_of(split: Split) -> tuple[Scene, ...]:
    assert isinstance(split.reader, SceneReader)
    return split.reader.scenes


def test_every_image_has_five_captions(small: Dataset) -> None:
    assert [split.num_images for split in small.splits.values()] == [60, 20, 20]
    for split in small.splits.values():
        assert split.caption_image.tolist() == [image for image in range(split.num_images) for _ in range(5)]
        assert all(len(set(split.captions[5 * i : 5 * i + 5])) == 5 for i in range(split.num_images))


def test_no_description_occurs_twice_in_the_dataset() -> None:
    dataset = open_dataset(ScenesConfig())
    described = [scene for split in dataset.splits.values() for scene in scenes_of(split)]
    assert len(set(described)) == len(described) == 1400


def test_families_differ_in_one_respect(small: Dataset) -> None:
    for split in small.splits.values():
        described = scenes_of(split)
        for base, *others in (described[start : start + 4] for start in range(0, len(described), 4)):
            for other in others:
                assert len(other.objects) == len(base.objects)
                ground = (base.tint, base.pattern) != (other.tint, other.pattern)
                moved = len(set(base.objects) ^ set(other.objects))
                assert (ground, moved) in {(True, 0), (False, 2), (False, 4)}


def test_images_are_squares_with_noise_and_the_same_each_time(small: Dataset) -> None:
    train = small.splits["train"]
    pixels = train.load_image(3)
    assert pixels.shape == (64, 64, 3)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, train.load_image(3))
    assert np.array_equal(pixels, open_dataset(SMALL).splits["train"].load_image(3))
    assert not np.array_equal(pixels, train.load_image(2))


def test_the_config_gives_the_size() -> None:
    dataset = open_dataset(replace(SMALL, image=ImageConfig(size=32, resize=40, augment="none")))
    assert dataset.splits["val"].load_image(0).shape == (40, 40, 3)


def test_the_test_split_stays_when_the_training_split_grows(small: Dataset) -> None:
    grown = open_dataset(replace(SMALL, num_train=90))
    for name in ("val", "test"):
        assert grown.splits[name].captions == small.splits[name].captions
        assert scenes_of(grown.splits[name]) == scenes_of(small.splits[name])
    assert grown.splits["train"].captions[:300] == small.splits["train"].captions


def test_descriptions_stay_apart_where_few_are_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"SHAPES": ("circle", "star"), "COLOURS": ("red", "blue"), "SIZES": ("small",), "TINTS": ("grey",)}
    for name, words in {**few, "PATTERNS": ("plain",)}.items():
        monkeypatch.setattr(scene_contents, name, words)
    monkeypatch.setattr(scenes, "TRIES_IN_FAMILY", 5)
    crowded = open_dataset(ScenesConfig(num_train=400, num_val=100, num_test=100))
    everything = [scene for split in crowded.splits.values() for scene in scenes_of(split)]
    assert len(set(everything)) == 600
    fewer = open_dataset(ScenesConfig(num_train=200, num_val=100, num_test=100))
    for name in ("val", "test"):
        assert scenes_of(fewer.splits[name]) == scenes_of(crowded.splits[name])


def test_the_seed_gives_other_data(small: Dataset) -> None:
    other = open_dataset(replace(SMALL, data_seed=1))
    assert not set(scenes_of(other.splits["test"])) & set(scenes_of(small.splits["test"]))
    assert other.fingerprint != small.fingerprint


def test_the_fingerprint_covers_parameters_and_not_the_name(small: Dataset) -> None:
    assert open_dataset(replace(SMALL, name="drawings")).fingerprint == small.fingerprint
    changes: list[dict[str, Any]] = [{"num_train": 61}, {"num_val": 21}, {"num_test": 21}, {"min_word_count": 2}]
    prints = {open_dataset(replace(SMALL, **change)).fingerprint for change in changes}
    image = ImageConfig(size=60, resize=64, augment="none")
    assert len(prints | {small.fingerprint, open_dataset(replace(SMALL, image=image)).fingerprint}) == 6


def captions_digest(dataset: Dataset) -> str:
    text = "\n".join(caption for split in dataset.splits.values() for caption in split.captions)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_captions_are_those_of_this_generator_version(small: Dataset) -> None:
    # When this changes on purpose, raise GENERATOR_VERSION, or finished cells pass for cells of the new data.
    assert captions_digest(small) == "4fb3114d8d44b5d1"
    assert (
        small.splits["test"].captions[0]
        == "on a striped pale blue backdrop, a huge red heart right of a large violet heart"
    )


def test_another_process_draws_the_same(small: Dataset) -> None:
    program = (
        "from goal_sweep.goal_core.data.config import ScenesConfig; "
        "from goal_sweep.goal_core.data import open_dataset; "
        "import numpy as np; np.random.seed(5);"
        "split = open_dataset(ScenesConfig(num_train=60, num_val=20, num_test=20)).splits['val'];"
        "print(split.load_image(7).astype(int).sum(), split.captions[9])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    val = small.splits["val"]
    assert done.stdout.strip() == f"{val.load_image(7).astype(int).sum()} {val.captions[9]}"


def test_captions_read_like_english_and_need_few_words(small: Dataset) -> None:
    captions = [caption for split in small.splits.values() for caption in split.captions]
    for caption in captions:
        assert caption == " ".join(caption.split())
        assert "{" not in caption
        assert not re.search(r"\ba (?=[aeiou])|\ban (?=[^aeiou])", caption), caption
        assert 5 <= len(caption.split()) <= 30
    assert len(Vocabulary.build(captions, 1)) < 130
    assert len(set(captions)) > 0.95 * len(captions)
