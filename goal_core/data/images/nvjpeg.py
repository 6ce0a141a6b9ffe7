"""JPEG files decoded on the GPU, by nvJPEG through torchvision. Other files are decoded by Pillow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from goal_core.data.images.transforms import decode_bytes
from goal_core.errors import DataError, DeviceError, first_line

Decode = Callable[[list[Tensor]], list[Tensor]]
"""Turns the bytes of JPEG files, each (N,) uint8 on the CPU, into images, (3, H, W) uint8."""
_JPEG = b"\xff\xd8\xff"


def nvjpeg(device: torch.device) -> Decode:
    """Decode on a GPU.

    Raises:
        DeviceError: the device is no GPU.
    """
    if device.type != "cuda":
        raise DeviceError(f"data.image.decoder nvjpeg needs a GPU, got device {device}; pillow decodes on the CPU")
    # Threads begin on the first GPU, whatever this process has chosen.
    there = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)

    def decode(files: list[Tensor]) -> list[Tensor]:
        from torchvision.io import ImageReadMode, decode_jpeg

        images: list[Tensor] = decode_jpeg(files, mode=ImageReadMode.RGB, device=there)
        return images

    return decode


def decoded_files(files: Sequence[bytes], labels: Sequence[str], decode: Decode) -> list[Tensor]:
    """Decode files to images, (H, W, 3) uint8, on the device of ``decode``, or for other files than JPEG on the CPU.

    Args:
        files: their contents.
        labels: their names in messages.
        decode: decodes JPEG files.

    Raises:
        DataError: a file is damaged or no image; the message names it.
    """
    images: list[Tensor | None] = [None] * len(files)
    jpegs = [index for index, content in enumerate(files) if content.startswith(_JPEG)]
    contents = [torch.from_numpy(np.frombuffer(files[index], np.uint8).copy()) for index in jpegs]
    for index, image in zip(jpegs, _all_decoded(contents, [labels[index] for index in jpegs], decode), strict=True):
        images[index] = image.permute(1, 2, 0)
    return [
        torch.from_numpy(decode_bytes(files[index], labels[index]).copy()) if image is None else image
        for index, image in enumerate(images)
    ]


def _all_decoded(contents: list[Tensor], labels: list[str], decode: Decode) -> list[Tensor]:
    """Decode together; if that fails, one by one, to name the file at fault."""
    if not contents:
        return []
    try:
        return decode(contents)
    except RuntimeError as error:
        for content, label in zip(contents, labels, strict=True):
            try:
                decode([content])
            except RuntimeError as own:
                raise DataError(f"cannot read image {label}: {first_line(own)}") from error
        raise
