"""RandAugment as X-VLM uses it: two of ten operations, each applied with probability one half, at a fixed strength.

The operations are torchvision's. The image's own random generator chooses them and their direction.

Source: X-VLM's training transform, RandAugment(2, 7) of Cubuk et al. 2020 (arXiv:1909.13719) with a chance of one half
for each drawn operation. Deviates: X-VLM rotates and shears with OpenCV, here torchvision does, bilinear as well.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image

NUM_OPERATIONS = 2
CHANCE = 0.5
STRENGTH = 0.7
"""Level 7 of 10."""
_ENHANCE = 0.1 + 1.8 * STRENGTH
_SHEAR_DEGREES = float(np.degrees(np.arctan(0.3 * STRENGTH)))
_SHIFT_PIXELS = round(10 * STRENGTH)
_TURN_DEGREES = 30 * STRENGTH
_GREY = (128.0, 128.0, 128.0)


def rand_augment(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Distort an image.

    Args:
        image: RGB.
        generator: advanced by six uniform doubles in any case.

    Returns:
        RGB, of the same size.
    """
    draws = generator.random(3 * NUM_OPERATIONS).reshape(NUM_OPERATIONS, 3)
    names = tuple(OPERATIONS)
    for which, whether, sign in draws.tolist():
        if whether < CHANCE:
            image = OPERATIONS[names[int(which * len(names))]](image, 1 if sign < 0.5 else -1)
    return image


def _undirected(kind: str, *settings: float) -> Callable[[Image.Image, int], Image.Image]:
    def operation(image: Image.Image, sign: int) -> Image.Image:
        from torchvision.transforms import functional

        changed: Image.Image = getattr(functional, kind)(image, *settings)
        return changed

    return operation


def _move(
    *, degrees: float = 0.0, shift: tuple[int, int] = (0, 0), shear: tuple[float, float] = (0.0, 0.0)
) -> Callable[[Image.Image, int], Image.Image]:
    def operation(image: Image.Image, sign: int) -> Image.Image:
        from torchvision.transforms import InterpolationMode, functional

        changed: Image.Image = functional.affine(
            image,
            angle=sign * degrees,
            translate=[sign * part for part in shift],
            scale=1.0,
            shear=[sign * part for part in shear],
            interpolation=InterpolationMode.BILINEAR,
            fill=list(_GREY),
        )
        return changed

    return operation


OPERATIONS: dict[str, Callable[[Image.Image, int], Image.Image]] = {
    "Identity": lambda image, sign: image,
    "AutoContrast": _undirected("autocontrast"),
    "Equalize": _undirected("equalize"),
    "Brightness": _undirected("adjust_brightness", _ENHANCE),
    "Sharpness": _undirected("adjust_sharpness", _ENHANCE),
    "ShearX": _move(shear=(_SHEAR_DEGREES, 0.0)),
    "ShearY": _move(shear=(0.0, _SHEAR_DEGREES)),
    "TranslateX": _move(shift=(_SHIFT_PIXELS, 0)),
    "TranslateY": _move(shift=(0, _SHIFT_PIXELS)),
    "Rotate": _move(degrees=_TURN_DEGREES),
}
"""All operations, in X-VLM's order; each takes an image and a direction, 1 or -1."""
