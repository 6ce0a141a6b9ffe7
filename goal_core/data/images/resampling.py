"""Pillow's resize on any device, bit for bit: the same weights of the same 22 bits, rounded after each of both passes.

Pillow turns the weights of its antialiased filters into integers and rounds to 8 bits after each of its two passes,
horizontal and vertical. Integers add up to the same sum in any order, so a GPU gets Pillow's pixels exactly.

Source: Pillow's Resample.c (precompute_coeffs, normalize_coeffs_8bpc and the two ImagingResample passes); which pass
comes first since Pillow 13 was found by comparing pixels (the change is Pillow's pull request 9549).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import PIL
import torch
from PIL import Image
from torch import Tensor

from goal_core.errors import DeviceError

_BITS = 22
_SUPPORT = {Image.Resampling.BILINEAR: 1.0, Image.Resampling.BICUBIC: 2.0}
_CUBIC = -0.5


def resample(
    images_B3HW: Tensor,
    sizes_B2: Tensor,
    outs_B2: Tensor,
    firsts_B2: Tensor,
    size: int,
    resampling: Image.Resampling = Image.Resampling.BILINEAR,
) -> Tensor:
    """Resize images of different sizes, each to a size of its own, and cut the same square of each.

    Args:
        images_B3HW: uint8, each in the upper left corner of its (H, W); what is beyond it has no effect.
        sizes_B2: height and width of each, int64.
        outs_B2: height and width to which each is resized, int64.
        firsts_B2: the first row and column that are kept of the resized image, int64, at least 0.
        size: S, rows and columns that are kept; they must lie in the resized image.
        resampling: bilinear or bicubic.

    Returns:
        (B, 3, S, S) uint8 on the device of the images; sizes and positions are on it too.
    """
    resized = torch.empty((len(images_B3HW), 3, size, size), dtype=torch.uint8, device=images_B3HW.device)
    rows_first_B = _rows_first(sizes_B2, outs_B2)
    for chosen_B, axes in ((~rows_first_B, (1, 0)), (rows_first_B, (0, 1))):
        which = chosen_B.nonzero()[:, 0]
        if len(which):
            lines = images_B3HW[which]
            for axis in axes:
                lengths, outs, firsts = (given[which, axis] for given in (sizes_B2, outs_B2, firsts_B2))
                lines = _pass(lines, lengths, outs, firsts, size, axis, resampling)
            resized[which] = lines
    return resized


def _rows_first(sizes_B2: Tensor, outs_B2: Tensor) -> Tensor:
    """Which images Pillow resizes vertically first, (B,) bool; from Pillow 13 those that lose far more rows."""
    lost_B2 = sizes_B2 - outs_B2
    if int(PIL.__version__.partition(".")[0]) < 13:
        return torch.zeros_like(lost_B2[:, 0], dtype=torch.bool)
    return (lost_B2[:, 0] > 0) & (lost_B2[:, 0] > 2 * lost_B2[:, 1])


def _pass(
    lines: Tensor,
    lengths_B: Tensor,
    outs_B: Tensor,
    firsts_B: Tensor,
    size: int,
    axis: int,
    resampling: Image.Resampling,
) -> Tensor:
    """Resize the rows (axis 0) or columns (axis 1) of images (B, 3, H, W)."""
    positions_BST, weights_BST = _weights(lengths_B, outs_B, firsts_B, size, resampling)
    dim = axis + 2
    shape = list(lines.shape)
    shape[dim] = size
    view = [len(lines), 1, size, 1] if axis == 0 else [len(lines), 1, 1, size]
    total = torch.full(shape, 1 << (_BITS - 1), dtype=torch.int32, device=lines.device)
    for tap in range(positions_BST.shape[2]):
        taken = lines.gather(dim, positions_BST[:, :, tap].view(view).expand(shape))
        total.addcmul_(taken.int(), weights_BST[:, :, tap].reshape(view))
    return (total >> _BITS).clamp_(0, 255).to(torch.uint8)


def _weights(
    lengths_B: Tensor, outs_B: Tensor, firsts_B: Tensor, size: int, resampling: Image.Resampling
) -> tuple[Tensor, Tensor]:
    """Which pixels of a line make each kept pixel of the resized line, and their integer weights, (B, S, T) each."""
    device = lengths_B.device
    scale_B = lengths_B.double() / outs_B.double()
    filter_B = scale_B.clamp(min=1.0)
    support_B = _SUPPORT[resampling] * filter_B
    taps = int(torch.ceil(support_B.max())) * 2 + 1
    kept_BS = firsts_B[:, None] + torch.arange(size, device=device)
    centre_BS = (kept_BS.double() + 0.5) * scale_B[:, None]
    first_BS = (centre_BS - support_B[:, None] + 0.5).long().clamp(min=0)
    last_BS = torch.minimum((centre_BS + support_B[:, None] + 0.5).long(), lengths_B[:, None])
    positions_BST = first_BS[:, :, None] + torch.arange(taps, device=device)
    distance_BST = (positions_BST.double() - centre_BS[:, :, None] + 0.5) * (1.0 / filter_B)[:, None, None]
    weights_BST = _filter(distance_BST, resampling) * (positions_BST < last_BS[:, :, None])
    sum_BS = torch.zeros_like(centre_BS)
    for tap in range(taps):  # in this order, as in C
        sum_BS += weights_BST[:, :, tap]
    exact_BST = weights_BST / sum_BS[:, :, None] * (1 << _BITS)
    rounded_BST = torch.where(exact_BST < 0, exact_BST - 0.5, exact_BST + 0.5).to(torch.int32)
    return torch.minimum(positions_BST, lengths_B[:, None, None] - 1), rounded_BST


def _filter(distance: Tensor, resampling: Image.Resampling) -> Tensor:
    x = distance.abs()
    if resampling is Image.Resampling.BILINEAR:
        return torch.where(x < 1.0, 1.0 - x, 0.0)
    near = ((_CUBIC + 2.0) * x - (_CUBIC + 3.0)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * _CUBIC
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, 0.0))


@cache
def check_resampling(device: torch.device) -> None:
    """Compare a few images with Pillow's on a device, once in a process: another Pillow may resize in another way.

    Raises:
        DeviceError: the pixels differ.
    """
    noise = np.random.default_rng(0)
    for resampling in _SUPPORT:
        for height, width, size in ((61, 90, 23), (90, 31, 24), (17, 33, 40), (33, 17, 20), (224, 200, 64)):
            pixels = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
            expected = np.asarray(Image.fromarray(pixels).resize((size, size), resampling))
            given = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).to(device)[None]
            sides, outs = (torch.tensor([side], device=device) for side in ((height, width), (size, size)))
            found = resample(given, sides, outs, torch.zeros_like(outs), size, resampling)
            if not np.array_equal(found[0].permute(1, 2, 0).cpu().numpy(), expected):
                raise DeviceError(
                    f"images resized on {device} differ from those of this Pillow; set execution.augment_on to cpu"
                )
