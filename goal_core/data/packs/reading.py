"""Read a pack: each image is compared with its checksum whenever it is read.

Images are read by their position, right into the batch, from the system's cache of files, which all processes share. A
mapped shard would kill the process with a bus error where its disk fails or its file is cut, and its first use costs
several times as much.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import read_json
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import Dataset, ImageReader, RegionReader
from goal_core.data.images import decode_bytes, transform_of
from goal_core.data.packs.layout import DESCRIPTION, END, ROW, PackPlan, plan_pack

_MEND = "`goal-sweep data pack SWEEP` mends it"


class Shard:
    """An open shard.

    Attributes:
        rows: one `ROW` for each of its images.

    Raises:
        DataError: it is missing, or its rows are damaged; the message names the file, as in all below.
    """

    def __init__(self, path: Path) -> None:
        self._path, rows = path, b""
        try:
            self._file = path.open("rb", buffering=0)
            descriptor = self._file.fileno()
            start = os.fstat(descriptor).st_size - END.itemsize
            end = np.frombuffer(os.pread(descriptor, END.itemsize, max(0, start)).ljust(END.itemsize), END)[0]
            length = int(end["images"]) * ROW.itemsize
            if length <= start:
                rows = os.pread(descriptor, length, start - length)
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}") from error
        if not rows or zlib.crc32(rows) != end["crc"]:
            raise DataError(f"{path} is damaged: the checksum of its rows does not match")
        self.rows: NDArray[np.void] = np.frombuffer(rows, ROW)

    def content(self, row: int) -> NDArray[np.uint8]:
        """The bytes of an image.

        Raises:
            DataError: they cannot be read, or their checksum does not match.
        """
        into = np.empty(int(self.rows[row]["bytes"]), np.uint8)
        try:
            done = os.preadv(self._file.fileno(), [into.data], int(self.rows[row]["offset"]))
        except OSError as error:
            raise DataError(f"cannot read {self._path}: {error.strerror or error}") from error
        if done != into.nbytes or zlib.crc32(into.data) != self.rows[row]["crc"]:
            raise DataError(f"{self._path} is damaged: the checksum of its image {row} does not match")
        return into

    def verify(self) -> None:
        """Check all images.

        Raises:
            DataError: one is damaged.
        """
        for row in range(len(self.rows)):
            self.content(row)


class PackedImages:
    """A split's images from a pack; an :class:`~goal_core.data.dataset.ImageReader` and a `PackedReader`.

    A pack is a cache: one that is damaged or gone is set aside, and the images come from their files. Pickled, it opens
    the pack again.

    Args:
        source: reads the images from their files.
        plan: the pack.
        split: the split's name.
        per_shard: images of each shard but the last.
    """

    def __init__(self, source: ImageReader, plan: PackPlan, split: str, per_shard: int) -> None:
        self._source, self._plan, self._split, self._per_shard = source, plan, split, per_shard
        self._form, self._transform = plan.form(split), transform_of(plan.image)
        self.holds_squares = self._form == "squares"
        self._shards: dict[int, Shard] = {}
        self._is_aside = False

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedImages, (self._source, self._plan, self._split, self._per_shard)

    def __len__(self) -> int:
        return len(self._source)

    def label(self, index: int) -> str:
        """The label of the source."""
        return self._source.label(index)

    def read(self, index: int) -> NDArray[np.uint8]:
        """One image in its original size, from its file."""
        return self._source.read(index)

    def first(self, num_images: int) -> Self:
        """A reader of the first images only."""
        return type(self)(self._source.first(num_images), self._plan, self._split, self._per_shard)

    def square(self, index: int, into: NDArray[np.uint8]) -> None:
        """Read the square of pixels that evaluation sees of an image into ``into``, (3, S, S) uint8, contiguous."""
        if (found := self._packed(index)) is not None:
            into.reshape(-1)[:] = found[1]
        else:
            into[:] = self._transform.for_evaluation(self._transform.prepared(self.read(index))).numpy()

    def prepared(self, index: int) -> NDArray[np.uint8]:
        """One image after ``shrink`` and ``jpeg``, (H, W, 3) uint8 RGB."""
        if (found := self._packed(index)) is None:
            return self._transform.prepared(self.read(index))
        row, content = found
        if self._form == "jpeg":
            return decode_bytes(content.tobytes(), f"{self.label(index)} in {self._plan.folder}")
        return content.reshape(int(row["height"]), int(row["width"]), 3)

    def _packed(self, index: int) -> tuple[np.void, NDArray[np.uint8]] | None:
        """An image's row and bytes; None where the pack is of no use any more."""
        if self._is_aside:
            return None
        number, row = divmod(index, self._per_shard)
        try:
            if number not in self._shards:
                # Another thread may open it meanwhile, and read from it.
                self._shards.setdefault(number, Shard(self._plan.shard(self._split, number)))
            shard = self._shards[number]
            content = shard.content(row)
        except (DataError, IndexError) as error:
            self._is_aside = True
            set_aside(self._plan, str(error))
            return None
        return shard.rows[row], content


def set_aside(plan: PackPlan, why: str) -> None:
    """Let nobody else use a damaged pack, and say so in this process's log."""
    line = f"{why}; the pack is set aside, and images come from their files ({_MEND})"
    os.write(2, f"{line}\n".encode())
    with suppress(OSError):
        (plan.folder / DESCRIPTION).replace(plan.folder / f"damaged-{DESCRIPTION}")


def open_packed(dataset: Dataset, image: ImageConfig | None, packs: Path | None) -> tuple[Dataset, str]:
    """Put the pack of a dataset under its splits, where there is one.

    Opening takes as long for a million images as for a thousand.

    Args:
        dataset: opened from its files.
        image: its settings; None where it has features.
        packs: the folder of all packs; None uses none.

    Returns:
        The dataset, with the pack or unchanged, and one line for the log that says where images come from.
    """
    if image is None:
        return dataset, "precomputed features"
    if packs is None:
        return dataset, "decoded from their files"
    plan = plan_pack(dataset, image, packs)
    try:
        stated = read_json(plan.folder / DESCRIPTION)
        if stated is None:
            return dataset, f"decoded from their files (no whole pack {plan.folder}; `goal-sweep data pack` makes one)"
        splits = {}
        for name, split in dataset.splits.items():
            assert not isinstance(split.reader, RegionReader)  # or it has no plan
            if stated["images"][name] < split.num_images:
                raise DataError(f"{plan.folder} has fewer than the {split.num_images} images of split {name!r}")
            splits[name] = replace(split, reader=PackedImages(split.reader, plan, name, stated["per_shard"][name]))
    except (DataError, DamagedError, StorageError, KeyError) as error:
        set_aside(plan, str(error))
        return dataset, f"decoded from their files ({error})"
    forms = ", ".join(f"{name} {plan.form(name)}" for name in splits)
    return replace(dataset, splits=splits), f"pack {plan.folder} ({forms})"
