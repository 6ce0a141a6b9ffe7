"""Image files to RGB arrays, and arrays to the square that a backbone sees.

Resizing is Pillow's antialiased bilinear and crops are placed as torchvision's, so the same weights see the same
pixels as with ``torchvision.transforms`` on Pillow images.
"""

from __future__ import annotations

import math
import os

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from goal_core.data.config import ImageConfig
from goal_core.data.images.rand_augment import rand_augment
from goal_core.errors import DataError

CROP_SCALE = (0.08, 1.0)
"""Range of a random crop's share of the image area."""
XVLM_CROP_SCALE = (0.5, 1.0)
"""The same of X-VLM's crops."""
CROP_RATIO = (3 / 4, 4 / 3)
"""Range of a random crop's width : height."""
SIDE_SCALE = (0.6, 1.0)
"""Range of a VSE-infinity crop's share of both sides."""
_CROP_TRIES = 10
_LONGEST_RATIO = 32
"""Images longer than this many times their breadth lose their ends before the resize, which would blow them up."""


def decode_image(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Decode an image file to RGB.

    Transparency (RGBA, LA, a transparent colour or palette entry) is composited on white. 16-bit greyscale keeps its
    upper 8 bits. Palettes, greyscale and CMYK are converted. An EXIF orientation is not applied: the pixels stay as
    they are stored, as in the published pipelines. Of an animation the first frame is taken.

    Returns:
        (H, W, 3) uint8.

    Raises:
        DataError: the file is missing, is no image, or is damaged.
    """
    try:
        with Image.open(path) as image:
            image.load()
            return np.asarray(_to_rgb(image))
    except MemoryError:
        raise
    # Pillow's decoders raise OSError, SyntaxError, ValueError, EOFError, struct.error and more on damaged files.
    except Exception as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"cannot read image {os.fspath(path)}: {detail}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips the wide integer modes when it converts them; 16-bit files should be scaled instead.
        wide = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
        return Image.fromarray((wide >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        coloured = image.convert("LA" if image.mode == "La" else "RGBA").convert("RGBA")
        white = Image.new("RGBA", coloured.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, coloured).convert("RGB")
    return image.convert("RGB")


def eval_image(pixels_HW3: NDArray[np.uint8], config: ImageConfig) -> Tensor:
    """Resize the shorter side to ``config.resize`` and cut the central ``config.size`` square.

    With ``augment: vse_infty`` or ``xvlm`` the whole image is stretched to the square instead.

    Args:
        pixels_HW3: RGB image of any size, (H, W, 3) uint8.
        config: the sizes, pixels.

    Returns:
        (3, size, size) uint8.
    """
    if config.augment in ("vse_infty", "xvlm"):
        return _to_tensor(_stretched(pixels_HW3, config))
    height, width = pixels_HW3.shape[:2]
    longest = _LONGEST_RATIO * min(height, width)
    top, left = max(0, height - longest) // 2, max(0, width - longest) // 2
    pixels_HW3 = pixels_HW3[top : top + longest, left : left + longest]
    height, width = pixels_HW3.shape[:2]
    if width <= height:
        new_width, new_height = config.resize, int(config.resize * height / width)
    else:
        new_width, new_height = int(config.resize * width / height), config.resize
    image = Image.fromarray(pixels_HW3)
    if (new_width, new_height) != (width, height):
        image = image.resize((new_width, new_height), Image.Resampling.BILINEAR)
    left, top = round((new_width - config.size) / 2.0), round((new_height - config.size) / 2.0)
    return _to_tensor(image.crop((left, top, left + config.size, top + config.size)))


def train_image(pixels_HW3: NDArray[np.uint8], config: ImageConfig, generator_seed: int) -> Tensor:
    """Augment an image for training, as ``config.augment`` says.

    Args:
        pixels_HW3: RGB image of any size, (H, W, 3) uint8.
        config: the sizes and the augmentation.
        generator_seed: seeds this image's draws, at least 0; equal seeds give equal pixels in every process.

    Returns:
        (3, size, size) uint8.

    Source: VSE++'s training transform: RandomResizedCrop and RandomHorizontalFlip of torchvision, same parameters;
        VSE-infinity's: one share of both sides, stretched to the square, flip. X-VLM's: RandomResizedCrop, flip,
        :func:`~goal_core.data.images.rand_augment.rand_augment`.
    Deviates: VSE-infinity resizes with OpenCV, which does not smooth when it shrinks.
    """
    if config.augment == "none":
        return eval_image(pixels_HW3, config)
    generator = np.random.Generator(np.random.PCG64(generator_seed))
    height, width = pixels_HW3.shape[:2]
    if config.augment == "vse_infty":
        top, left, height, width = scaled_crop_box(height, width, generator)
    else:
        scale = XVLM_CROP_SCALE if config.augment == "xvlm" else CROP_SCALE
        top, left, height, width = random_crop_box(height, width, generator, scale)
    square = _stretched(pixels_HW3[top : top + height, left : left + width], config)
    if generator.random() < 0.5:
        square = square.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if config.augment == "xvlm":
        square = rand_augment(square, generator)
    return _to_tensor(square)


def random_crop_box(
    height: int, width: int, generator: np.random.Generator, scale: tuple[float, float] = CROP_SCALE
) -> tuple[int, int, int, int]:
    """Draw a crop as torchvision's ``RandomResizedCrop`` does.

    Ten tries of a uniform share of the area and a log-uniform ratio; when none fits, the largest central crop of an
    allowed ratio. Only uniform doubles are drawn, whose stream numpy keeps the same from version to version.

    Args:
        height: of the image, pixels.
        width: of the image, pixels.
        generator: advanced by the draws.
        scale: range of the crop's share of the area.

    Returns:
        Top, left, height and width of the crop, pixels, within the image.
    """
    low, high = math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1])
    for _ in range(_CROP_TRIES):
        area = height * width * (scale[0] + (scale[1] - scale[0]) * generator.random())
        ratio = math.exp(low + (high - low) * generator.random())
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int((height - crop_height + 1) * generator.random())
            left = int((width - crop_width + 1) * generator.random())
            return top, left, crop_height, crop_width
    crop_width, crop_height = width, height
    if width / height < CROP_RATIO[0]:
        crop_height = min(height, max(1, round(width / CROP_RATIO[0])))
    elif width / height > CROP_RATIO[1]:
        crop_width = min(width, max(1, round(height * CROP_RATIO[1])))
    return (height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width


def scaled_crop_box(height: int, width: int, generator: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a crop of .6 to 1 of both sides, anywhere in the image; see :func:`random_crop_box`."""
    low, high = SIDE_SCALE
    share = low + (high - low) * generator.random()
    crop_height, crop_width = max(1, int(height * share)), max(1, int(width * share))
    top = int((height - crop_height + 1) * generator.random())
    left = int((width - crop_width + 1) * generator.random())
    return top, left, crop_height, crop_width


def _stretched(pixels_HW3: NDArray[np.uint8], config: ImageConfig) -> Image.Image:
    how = Image.Resampling.BICUBIC if config.augment == "xvlm" else Image.Resampling.BILINEAR
    return Image.fromarray(pixels_HW3).resize((config.size, config.size), how)


def _to_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image).transpose(2, 0, 1).copy())
