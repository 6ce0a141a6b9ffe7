"""RGB arrays of images to the pixels that a backbone sees.

Resizing is Pillow's, with antialiasing, and crops lie where torchvision's do, so the same weights see the same pixels
as with ``torchvision.transforms`` on Pillow images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from goal_sweep.goal_core.data.config import ImageConfig

CROP_SCALE, XVLM_CROP_SCALE = (0.08, 1.0), (0.5, 1.0)
"""Range of a random crop's share of the image's area, as a rule and in X-VLM."""
CROP_RATIO = (3 / 4, 4 / 3)
"""Range of a random crop's width divided by its height."""
SIDE_SCALE = (0.6, 1.0)
"""Range of the share of both sides that a crop of VSE-infinity takes."""
_CROP_TRIES = 10
_OPERATIONS_DRAWN, _CHANCE, _STRENGTH = 2, 0.5, 0.7
"""Of RandAugment's operations, the last being level 7 of 10."""
_ENHANCE = 0.1 + 1.8 * _STRENGTH
_SHEAR_DEGREES = float(np.degrees(np.arctan(0.3 * _STRENGTH)))
_SHIFT_PIXELS = round(10 * _STRENGTH)
_TURN_DEGREES = 30 * _STRENGTH
_GREY = (128.0, 128.0, 128.0)
CropBox = tuple[int, int, int, int]
"""Top, left, height and width, pixels."""
_LONGEST_RATIO = 32
"""Images longer than this many times their breadth lose their ends; resized whole, they would become huge."""


@dataclass(frozen=True, slots=True)
class ImageTransform:
    """Turns images of any size into the square of pixels that a backbone sees; :func:`transform_of` makes one."""

    config: ImageConfig
    stretches: bool = False
    """Whether evaluation stretches the whole image to the square, instead of cropping its centre."""
    resampling: Image.Resampling = Image.Resampling.BILINEAR
    crop: Callable[[int, int, np.random.Generator], CropBox] | None = None
    """Draws the crop of a training image from its height and width; None: training uses the pixels of evaluation."""
    distort: Callable[[Image.Image, np.random.Generator], Image.Image] | None = None
    """Changes a training image after the crop and the flip."""

    def shrunk(self, pixels_HW3: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A larger image shrunk to ``shrink``, as the other methods do first; they take shrunk images, too."""
        if not 0 < self.config.shrink < min(pixels_HW3.shape[:2]):
            return pixels_HW3
        return np.asarray(_with_shorter_side(pixels_HW3, self.config.shrink, self.resampling))

    def for_evaluation(self, pixels_HW3: NDArray[np.uint8]) -> Tensor:
        """The central crop of the resized image, or the whole image stretched: (3, size, size) uint8 of (H, W, 3)."""
        pixels_HW3 = self.shrunk(pixels_HW3)
        if self.stretches:
            return _to_tensor(self._stretched(pixels_HW3))
        image, size = _with_shorter_side(pixels_HW3, self.config.resize, self.resampling), self.config.size
        left, top = (round((side - size) / 2) for side in image.size)
        return _to_tensor(image.crop((left, top, left + size, top + size)))

    def for_training(self, pixels_HW3: NDArray[np.uint8], seed: int) -> Tensor:
        """The image cropped, flipped and distorted at random, (3, size, size) uint8; without ``crop`` as in evaluation.

        Equal seeds (at least 0) give equal pixels in every process.
        """
        if self.crop is None:
            return self.for_evaluation(pixels_HW3)
        pixels_HW3 = self.shrunk(pixels_HW3)
        generator = np.random.Generator(np.random.PCG64(seed))
        top, left, height, width = self.crop(pixels_HW3.shape[0], pixels_HW3.shape[1], generator)
        image = self._stretched(pixels_HW3[top : top + height, left : left + width])
        if generator.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return _to_tensor(image if self.distort is None else self.distort(image, generator))

    def _stretched(self, pixels_HW3: NDArray[np.uint8]) -> Image.Image:
        return Image.fromarray(pixels_HW3).resize((self.config.size, self.config.size), self.resampling)


def _with_shorter_side(pixels_HW3: NDArray[np.uint8], side: int, resampling: Image.Resampling) -> Image.Image:
    """An image resized until its shorter side is ``side``, without the ends of a very long one."""
    height, width = pixels_HW3.shape[:2]
    longest = _LONGEST_RATIO * min(height, width)
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    height, width = min(height, longest), min(width, longest)
    image = Image.fromarray(pixels_HW3[top : top + height, left : left + width])
    wanted = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    return image if wanted == (width, height) else image.resize(wanted, resampling)


def random_crop_box(
    height: int, width: int, generator: np.random.Generator, scale: tuple[float, float] = CROP_SCALE
) -> CropBox:
    """Draw a crop as torchvision's ``RandomResizedCrop`` does.

    Ten tries of a uniform share of the area, in the range ``scale``, and a log-uniform ratio; if none fits, the largest
    central crop of an allowed ratio. Only uniform doubles are drawn, which numpy keeps the same in every version.
    """
    low, high = math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])
    for _ in range(_CROP_TRIES):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * generator.random())
        ratio = math.exp(low + (high - low) * generator.random())
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int((height - crop_height + 1) * generator.random())
            return top, int((width - crop_width + 1) * generator.random()), crop_height, crop_width
    crop_width, crop_height = width, height
    if width / height < CROP_RATIO[0]:
        crop_height = min(height, max(1, round(width / CROP_RATIO[0])))
    elif width / height > CROP_RATIO[1]:
        crop_width = min(width, max(1, round(height * CROP_RATIO[1])))
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def scaled_crop_box(height: int, width: int, generator: np.random.Generator) -> CropBox:
    """Draw a crop of .6 to 1 of both sides, anywhere in the image; see :func:`random_crop_box`."""
    low, high = SIDE_SCALE
    share = low + (high - low) * generator.random()
    crop_height, crop_width = max(1, int(height * share)), max(1, int(width * share))
    top = int((height - crop_height + 1) * generator.random())
    return top, int((width - crop_width + 1) * generator.random()), crop_height, crop_width


def _moved(
    image: Image.Image, angle: float = 0.0, shift: tuple[int, int] = (0, 0), shear: tuple[float, float] = (0.0, 0.0)
) -> Image.Image:
    """An image turned about its centre, shifted and sheared, with grey where there was nothing."""
    from torchvision.transforms import InterpolationMode, functional

    moved: Image.Image = functional.affine(
        image, angle, list(shift), 1.0, list(shear), interpolation=InterpolationMode.BILINEAR, fill=list(_GREY)
    )
    return moved


OPERATIONS: Mapping[str, Callable[[Image.Image, int], Image.Image]] = {
    "Identity": lambda image, sign: image,
    "AutoContrast": lambda image, sign: ImageOps.autocontrast(image),
    "Equalize": lambda image, sign: ImageOps.equalize(image),
    "Brightness": lambda image, sign: ImageEnhance.Brightness(image).enhance(_ENHANCE),
    "Sharpness": lambda image, sign: ImageEnhance.Sharpness(image).enhance(_ENHANCE),
    "ShearX": lambda image, sign: _moved(image, shear=(sign * _SHEAR_DEGREES, 0.0)),
    "ShearY": lambda image, sign: _moved(image, shear=(0.0, sign * _SHEAR_DEGREES)),
    "TranslateX": lambda image, sign: _moved(image, shift=(sign * _SHIFT_PIXELS, 0)),
    "TranslateY": lambda image, sign: _moved(image, shift=(0, sign * _SHIFT_PIXELS)),
    "Rotate": lambda image, sign: _moved(image, angle=sign * _TURN_DEGREES),
}
"""In X-VLM's order. The sign, 1 or -1, is the direction of those that have one."""


def rand_augment(image: Image.Image, generator: np.random.Generator) -> Image.Image:
    """Distort an RGB image as X-VLM does: two of ten operations, each with probability one half, at a fixed strength.

    The image's own random generator chooses them and their direction; six uniform doubles advance it in any case.

    Source: X-VLM's training transform, RandAugment(2, 7) of Cubuk et al. 2020 (arXiv:1909.13719) with a chance of one
        half for each drawn operation.
    Deviates: X-VLM rotates and shears with OpenCV, here torchvision does, bilinear as well.
    """
    draws, operations = generator.random(3 * _OPERATIONS_DRAWN).reshape(_OPERATIONS_DRAWN, 3), [*OPERATIONS.values()]
    for which, whether, sign in draws.tolist():
        if whether < _CHANCE:
            image = operations[int(which * len(operations))](image, 1 if sign < 0.5 else -1)
    return image


def _to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image).transpose(2, 0, 1).copy())


_TRANSFORMS: Mapping[str, Callable[..., ImageTransform]] = {
    "none": ImageTransform,
    "clip": partial(ImageTransform, resampling=Image.Resampling.BICUBIC),
    "siglip": partial(ImageTransform, stretches=True, resampling=Image.Resampling.BICUBIC),
    "crop_flip": partial(ImageTransform, crop=random_crop_box),
    "vse_infty": partial(ImageTransform, stretches=True, crop=scaled_crop_box),
    "xvlm": partial(
        ImageTransform,
        stretches=True,
        resampling=Image.Resampling.BICUBIC,
        crop=partial(random_crop_box, scale=XVLM_CROP_SCALE),
        distort=rand_augment,
    ),
}


def transform_of(config: ImageConfig) -> ImageTransform:
    """The transform that ``config.augment`` names.

    Source: VSE++'s training transform is RandomResizedCrop and RandomHorizontalFlip of torchvision, with the same
        parameters; VSE-infinity's takes one share of both sides, stretches it to the square and flips it; X-VLM's is
        RandomResizedCrop, a flip and :func:`rand_augment`.
    Deviates: VSE-infinity resizes with OpenCV, which does not smooth when it shrinks.
    """
    return _TRANSFORMS[config.augment](config)


class Fit(NamedTuple):
    """How whole pictures become the square that a model sees."""

    resize: int
    """The shorter side before the central crop, pixels; 0 where pictures are stretched to the square."""
    resampling: Image.Resampling

    def __str__(self) -> str:
        how = f"resized to {self.resize} on the shorter side and cropped" if self.resize else "stretched to the square"
        return f"{how}, {self.resampling.name.lower()}"

    def unlike(self, config: ImageConfig) -> str:
        """What differs where settings fit pictures otherwise than a model's own processor; empty where nothing does."""
        own = transform_of(config)
        ours = Fit(0 if own.stretches else config.resize, own.resampling)
        said = f"pictures are {ours}, but by the model's own processor {self} (data.image.augment)"
        return "" if self == ours else said
