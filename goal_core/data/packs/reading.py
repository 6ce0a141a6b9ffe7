"""Read a pack: the archive compares each image with its checksum whenever it is read.

Images come from the system's cache of files, which all processes share. A mapped shard would kill the process with a
bus error where its disk fails or its file is cut.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import DataError, first_line
from goal_core.basics.sealed_json import read_json
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import Dataset, ImageReader, RegionReader
from goal_core.data.images import decode_bytes, transform_of
from goal_core.data.packs.layout import DESCRIPTION, PackPlan, plan_pack

_MEND = "`goal-sweep data pack SWEEP` mends it"


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
        self._shards: dict[tuple[int, int], ZipFile] = {}
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
            into.reshape(-1)[:] = np.frombuffer(found[1], np.uint8)
        else:
            into[:] = self._transform.for_evaluation(self._transform.prepared(self.read(index))).numpy()

    def prepared(self, index: int) -> NDArray[np.uint8]:
        """One image after ``shrink`` and ``jpeg``, (H, W, 3) uint8 RGB."""
        if (found := self._packed(index)) is None:
            return self._transform.prepared(self.read(index))
        shape, content = found
        if self._form == "jpeg":
            return decode_bytes(content, f"{self.label(index)} in {self._plan.folder}")
        return np.frombuffer(content, np.uint8).reshape(*shape, 3)

    def _packed(self, index: int) -> tuple[list[int], bytes] | None:
        """An image's height and width, and its bytes; None where the pack is of no use any more."""
        if self._is_aside:
            return None
        number, row = divmod(index, self._per_shard)
        path = self._plan.shard(self._split, number)
        try:
            # A process that was forked opens it anew. Another thread may open it meanwhile, and read from it.
            key = os.getpid(), number
            if key not in self._shards:
                self._shards.setdefault(key, ZipFile(path))
            shard = self._shards[key]
            member = shard.infolist()[row]
            return [int(side) for side in member.filename.partition("-")[2].split("x")], shard.read(member)
        except Exception as error:  # which kind, depends on the damage
            self._is_aside = True
            set_aside(self._plan, f"{path} is damaged or gone: {first_line(error)}")
            return None


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
