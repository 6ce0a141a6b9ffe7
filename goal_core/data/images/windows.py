"""Region-like squares of an image: the windows of a small pyramid, the whole image first."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

LEVELS = (1, 2, 3)
"""The pyramid has n x n windows at each of these levels; at level n a window spans 2 / (n + 1) of each side."""

NUM_WINDOWS = sum(level**2 for level in LEVELS)
"""14: the whole image, four windows of two thirds, nine of a half."""


def window_boxes(height: int, width: int) -> list[tuple[int, int, int, int]]:
    """The windows of an image, level by level and row by row.

    Args:
        height: of the image, pixels.
        width: of the image, pixels.

    Returns:
        Left, top, right and bottom of each of the :data:`NUM_WINDOWS` windows, pixels, each at least one pixel large.
        Neighbours overlap by half.
    """
    boxes = []
    for level in LEVELS:
        across, down = _spans(width, level), _spans(height, level)
        boxes += [(left, top, right, bottom) for top, bottom in down for left, right in across]
    return boxes


def window_squares(pixels_HW3: NDArray[np.uint8], size: int) -> Tensor:
    """The windows of an image, each stretched to a square.

    Args:
        pixels_HW3: RGB image of any size, (H, W, 3) uint8.
        size: side of the squares, pixels.

    Returns:
        (NUM_WINDOWS, 3, size, size) uint8.
    """
    image = Image.fromarray(pixels_HW3)
    squares = [
        np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
        for box in window_boxes(*pixels_HW3.shape[:2])
    ]
    return torch.from_numpy(np.stack(squares).transpose(0, 3, 1, 2).copy())


def _spans(length: int, level: int) -> list[tuple[int, int]]:
    """Start and end of a level's windows along one side."""
    span = max(1, round(length * 2 / (level + 1)))
    starts = [round((length - span) * index / max(1, level - 1)) for index in range(level)]
    return [(start, start + span) for start in starts]
