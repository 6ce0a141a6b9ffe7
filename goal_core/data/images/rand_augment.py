"""RandAugment as X-VLM uses it: two of ten operations, each applied with probability one half, at a fixed strength.

The operations are torchvision's. The image's own random generator chooses them and their direction.

Source: X-VLM's training transform, RandAugment(2, 7) of Cubuk et al. 2020 (arXiv:1909.13719) with a chance of one half
for each drawn operation. Deviates: X-VLM rotates and shears with OpenCV, here torchvision does, bilinear as well.
"""

from __future__ import annotations

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


OPERATIONS = (
    *("Identity", "AutoContrast", "Equalize", "Brightness", "Sharpness"),
    *("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"),
)
"""In X-VLM's order."""


def rand_augment(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Distort an image.

    Args:
        image: RGB.
        generator: advanced by six uniform doubles in any case.

    Returns:
        RGB, of the same size.
    """
    draws = generator.random(3 * NUM_OPERATIONS).reshape(NUM_OPERATIONS, 3)
    for which, whether, sign in draws.tolist():
        if whether < CHANCE:
            image = distorted(image, OPERATIONS[int(which * len(OPERATIONS))], 1 if sign < 0.5 else -1)
    return image


def distorted(image: Image.Image, operation: str, sign: int) -> Image.Image:
    """Apply one operation, in a direction, 1 or -1, where it has one."""
    from torchvision.transforms import InterpolationMode, functional

    angle, shift, shear = 0.0, [0, 0], [0.0, 0.0]
    match operation:
        case "Identity":
            return image
        case "AutoContrast" | "Equalize":
            plain: Image.Image = getattr(functional, operation.lower())(image)
            return plain
        case "Brightness" | "Sharpness":
            enhanced: Image.Image = getattr(functional, f"adjust_{operation.lower()}")(image, _ENHANCE)
            return enhanced
        case "ShearX" | "ShearY":
            shear[operation == "ShearY"] = sign * _SHEAR_DEGREES
        case "TranslateX" | "TranslateY":
            shift[operation == "TranslateY"] = sign * _SHIFT_PIXELS
        case _:
            angle = sign * _TURN_DEGREES
    bilinear = InterpolationMode.BILINEAR
    moved: Image.Image = functional.affine(image, angle, shift, 1.0, shear, interpolation=bilinear, fill=list(_GREY))
    return moved
