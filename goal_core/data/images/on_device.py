"""Training images cropped, resized and flipped on the device, with the pixels of the CPU bit for bit.

The CPU draws the same crops from the same seeds and reads only bytes; the device resizes as Pillow does
(:mod:`~goal_core.data.images.resampling`). A packed split that fits into the device's memory stays there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.data.config import ImageConfig
from goal_core.data.dataset import ImageReader, PackedReader, Split
from goal_core.data.images.decoding import DecodeRequest, memory_for_images
from goal_core.data.images.nvjpeg import Decode, decoded_files, nvjpeg
from goal_core.data.images.resampling import check_resampling, resample
from goal_core.data.images.transforms import transform_of
from goal_core.errors import ConfigError, DataError

_AT_ONCE = 32
"""Images that are resized together; more would take gigabytes for their crops."""


class _Crops(NamedTuple):
    """Crops on their way to the device."""

    padded: Tensor
    """(B, H, W, 3) uint8, each in the upper left corner."""
    sizes: Tensor
    """Height and width of each, (B, 2) int64."""
    outs: Tensor
    """Height and width that each gets, (B, 2) int64."""
    firsts: Tensor
    """The first row and column that are kept of it, (B, 2) int64."""
    flips: Tensor
    """Which are mirrored, (B,) bool."""


def obstacle(split: Split, config: ImageConfig) -> str:
    """Why a split's training images cannot be augmented on a device, in words; empty if they can."""
    transform = transform_of(config)
    if not transform.augments:
        return "training images are not augmented"
    if transform.distort is not None:
        return f"{config.augment} distorts images with Pillow"
    return ""


def has_crops_packed(split: Split) -> bool:
    """Whether a pack has a split's images to be cropped, decoded."""
    return isinstance(split.reader, PackedReader) and split.reader.image_shapes() is not None


class DeviceImages:
    """Batches of a split made on a device; in place of an :class:`~goal_core.data.images.ImageDecoder`.

    Images are augmented where a request has seeds, and otherwise as in evaluation.

    Args:
        split: the images.
        config: their sizes and augmentation.
        device: where batches are made.
        threads: that read images, at least 1.
        resident: keep the split on the device; None: if a pack has it and a quarter of a GPU's free memory has room.
        decode: decodes JPEG files where `config.decoder` is not Pillow; None: nvJPEG.

    Raises:
        ConfigError: the augmentation cannot be done on a device.
        DeviceError: the device, or this Pillow, gives other pixels.
    """

    def __init__(
        self,
        split: Split,
        config: ImageConfig,
        device: torch.device,
        *,
        threads: int = 1,
        resident: bool | None = None,
        decode: Decode | None = None,
    ) -> None:
        if config.decoder == "pillow" and (why := obstacle(split, config)):
            raise ConfigError(f"execution.augment_on: device is not possible: {why}")
        check_resampling(device)
        self._split, self._transform, self._device = split, transform_of(config), device
        self._packed = split.reader if isinstance(split.reader, PackedReader) else None
        self._threads = threads
        self._decode = (decode or nvjpeg(device)) if config.decoder == "nvjpeg" else None
        self._resident: list[Tensor] | None = self._loaded() if self._stays(resident) else None

    @property
    def is_resident(self) -> bool:
        """Whether the split is in the device's memory."""
        return self._resident is not None

    def stream(self, requests: Iterable[DecodeRequest]) -> Iterator[Tensor]:
        """Make batches one after the other; the next one is read while the last is used.

        Yields:
            (B, 3, size, size) uint8 on the device for each request, in order.

        Raises:
            DataError: an image cannot be read.
        """
        with ThreadPoolExecutor(self._threads) as pool, ThreadPoolExecutor(1) as ahead:
            todo = iter(requests)
            coming = self._begun(todo, pool, ahead)
            while coming is not None:
                parts = coming.result()
                coming = self._begun(todo, pool, ahead)
                yield torch.cat([self._finished(part) for part in parts])

    def close(self) -> None:
        """Nothing is left running between streams."""

    def _begun(
        self, todo: Iterator[DecodeRequest], pool: ThreadPoolExecutor, ahead: ThreadPoolExecutor
    ) -> Future[list[_Crops]] | None:
        request = next(todo, None)
        return None if request is None else ahead.submit(self._read, request, pool)

    def _read(self, request: DecodeRequest, pool: ThreadPoolExecutor) -> list[_Crops]:
        indices, seeds = request.images.tolist(), request.seeds or (None,) * len(request.images)
        return [
            self._crops(self._images(indices[start : start + _AT_ONCE], pool), seeds[start : start + _AT_ONCE])
            for start in range(0, len(indices), _AT_ONCE)
        ]

    def _images(self, indices: list[int], pool: ThreadPoolExecutor) -> list[Tensor]:
        """Whole images, (H, W, 3) uint8, on the device or on the CPU."""
        if self._resident is not None:
            return [self._resident[index] for index in indices]
        if self._decode is not None:
            files = list(pool.map(self._file, indices))
            return decoded_files(files, [self._split.reader.label(index) for index in indices], self._decode)
        return [torch.from_numpy(pixels) for pixels in pool.map(self._prepared, indices)]

    def _file(self, index: int) -> bytes:
        try:
            return Path(cast(ImageReader, self._split.reader).file(index)).read_bytes()
        except OSError as error:
            label = self._split.reader.label(index)
            raise DataError(f"cannot read image {label}: {error.strerror or error}") from error

    def _prepared(self, index: int) -> NDArray[np.uint8]:
        if self._packed is not None and not self._packed.holds_squares:
            return self._packed.prepared(index)
        return np.array(self._transform.prepared(self._split.load_image(index)))

    def _crops(self, images: Sequence[Tensor], seeds: Sequence[int | None]) -> _Crops:
        cut, outs, firsts, flips = [], [], [], []
        for image, seed in zip(images, seeds, strict=True):
            if seed is None:
                box, out, first = self._transform.frame(image.shape[0], image.shape[1])
                flips.append(False)
            else:
                box, flip, _ = self._transform.draw(image.shape[0], image.shape[1], seed)
                out, first = (self._transform.size, self._transform.size), (0, 0)
                flips.append(flip)
            top, left, height, width = box
            cut.append(image[top : top + height, left : left + width])
            outs.append(out)
            firsts.append(first)
        sizes = torch.tensor([crop.shape[:2] for crop in cut])
        height, width = sizes.max(0).values.tolist()
        shape, device = (len(cut), height, width, 3), images[0].device
        pinned = device.type == "cpu" and self._device.type == "cuda"
        padded = torch.empty(shape, dtype=torch.uint8, device=device, pin_memory=pinned)
        for row, crop in enumerate(cut):
            padded[row, : crop.shape[0], : crop.shape[1]] = crop
        return _Crops(padded, sizes, torch.tensor(outs), torch.tensor(firsts), torch.tensor(flips))

    def _finished(self, crops: _Crops) -> Tensor:
        images_B3HW = crops.padded.to(self._device, non_blocking=True).permute(0, 3, 1, 2).contiguous()
        sizes_B2, outs_B2, firsts_B2, flips_B = (one.to(self._device) for one in crops[1:])
        squares = resample(images_B3HW, sizes_B2, outs_B2, firsts_B2, self._transform.size, self._transform.resampling)
        return torch.where(flips_B[:, None, None, None], squares.flip(3), squares)

    def _stays(self, resident: bool | None) -> bool:
        shapes = None if self._packed is None else self._packed.image_shapes()
        if resident is not None or shapes is None or self._device.type != "cuda":
            return bool(resident)
        return 3 * int(shapes.prod(1).sum()) <= memory_for_images(self._device)

    def _loaded(self) -> list[Tensor]:
        """Every image on the device, (H, W, 3), in one block of memory."""
        with ThreadPoolExecutor(self._threads) as pool:
            shapes = None if self._packed is None else self._packed.image_shapes()
            if shapes is None:
                raise ConfigError("images stay on a device only from a pack; run goal-sweep data pack")
            block = torch.empty(3 * int(shapes.prod(1).sum()), dtype=torch.uint8, device=self._device)
            images, start = [], 0
            for pixels in _ahead(pool, self._prepared, self._split.num_images):
                stop = start + math.prod(pixels.shape)
                images.append(block[start:stop].view(pixels.shape))
                images[-1].copy_(torch.from_numpy(pixels))
                start = stop
        return images


def _ahead(
    pool: ThreadPoolExecutor, read: Callable[[int], NDArray[np.uint8]], count: int
) -> Iterator[NDArray[np.uint8]]:
    """The results of a function for 0 to ``count`` - 1, a few calls ahead."""
    for start in range(0, count, _AT_ONCE):
        yield from pool.map(read, range(start, min(start + _AT_ONCE, count)))
