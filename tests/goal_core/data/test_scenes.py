from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from goal_sweep.goal_core.data import ImageConfig
from goal_sweep.goal_core.data.config import ScenesConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.scenes import GENERATOR_VERSION

SMALL = ScenesConfig(num_train=30, num_val=10, num_test=10)


def test_every_image_is_a_square_with_five_captions() -> None:
    dataset = open_dataset(replace(SMALL, image=ImageConfig(size=32, resize=40, augment="none")))
    assert [split.num_images for split in dataset.splits.values()] == [30, 10, 10]
    for split in dataset.splits.values():
        assert split.caption_image.tolist() == [image for image in range(split.num_images) for _ in range(5)]
        assert all(len(set(split.captions[5 * i : 5 * i + 5])) == 5 for i in range(split.num_images))
    pixels = dataset.splits["val"].load_image(0)
    assert pixels.shape == (40, 40, 3)


def test_the_first_scenes_of_a_split_do_not_depend_on_its_size() -> None:
    small, grown = open_dataset(SMALL), open_dataset(replace(SMALL, num_train=60))
    assert grown.splits["train"].captions[:150] == small.splits["train"].captions
    assert np.array_equal(grown.splits["train"].load_image(29), small.splits["train"].load_image(29))
    assert grown.splits["test"].captions == small.splits["test"].captions


def test_the_fingerprint_covers_the_settings_and_not_the_name() -> None:
    whole = open_dataset(SMALL).fingerprint
    assert open_dataset(replace(SMALL, name="drawings")).fingerprint == whole
    image = ImageConfig(size=60, resize=64, augment="none")
    changes: list[dict[str, Any]] = [{"num_train": 31}, {"num_val": 11}, {"min_word_count": 2}, {"image": image}]
    assert len({open_dataset(replace(SMALL, **change)).fingerprint for change in changes} | {whole}) == 5


def test_another_process_draws_the_same_as_this_version_always_has() -> None:
    # When this changes on purpose, raise GENERATOR_VERSION, or finished cells pass for cells of the new data.
    program = (
        "from goal_sweep.goal_core.data.scenes import SceneReader; import numpy as np; np.random.seed(5)\n"
        "print(SceneReader('val', 32).read(7).astype(int).sum())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    val = open_dataset(replace(SMALL, image=ImageConfig(size=32, resize=32, augment="none"))).splits["val"]
    assert int(done.stdout) == val.load_image(7).astype(int).sum()
    assert (GENERATOR_VERSION, val.captions[35], int(done.stdout)) == (2, "a purple diamond above a red circle", 556748)
