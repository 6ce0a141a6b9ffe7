from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from goal_sweep.goal_core.data.transforms import OPERATIONS, rand_augment


def test_rand_augment_does_two_of_ten_operations_half_of_the_time() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (24, 24, 3), dtype=np.uint8)
    pixels[0, 0], pixels[0, 1] = 0, 255
    image = Image.fromarray(pixels)
    assert len(OPERATIONS) == 10
    for place, (name, operation) in enumerate(OPERATIONS.items()):
        there, back = operation(image, 1), operation(image, -1)
        assert there.size == image.size
        assert (there.tobytes() == back.tobytes()) == (place < 5)
        assert (there.tobytes() == image.tobytes()) == (
            name in ("Identity", "AutoContrast")
        )  # it is full range already
    draws = (np.random.Generator(np.random.PCG64(seed)) for seed in range(400))
    unchanged = np.mean([rand_augment(image, generator).tobytes() == image.tobytes() for generator in draws])
    assert unchanged == pytest.approx(
        0.6**2, abs=0.06
    )  # each draw: not done, or done and one of the two that do nothing
    shifted = np.asarray(OPERATIONS["TranslateX"](image, 1))
    assert np.array_equal(shifted[:, 7:], np.asarray(image)[:, :-7])
    assert (shifted[:, :7] == 128).all()
