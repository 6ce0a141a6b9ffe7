"""What a pack is called, what its files contain, and how they are read.

::

    PACKS/<key>/pack.json                   what the pack is of; written when it is complete
    PACKS/<key>/<split>-00000.zip ...       shards: a member for each image, `<number>-<height>x<width>`, not compressed

The archive compares each image with its checksum whenever it is read. Images come from the system's cache of files,
which all processes share. A mapped shard would kill the process with a bus error where its disk fails or its file is
cut.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import DamagedError, StorageError
from goal_core.basics.errors import DataError, first_line
from goal_core.basics.sealed_json import key_of, read_json
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import Dataset, ImageReader, RegionReader
from goal_core.data.images import decode_bytes, transform_of

LAYOUT_VERSION = 6
DESCRIPTION = "pack.json"
FEW_SHARDS = 128
"""A split has at most so many shards: each process keeps those open that it has read."""
PER_SHARD = 512
"""Images of a shard, which a killed writer loses at most; more where there would be more than :data:`FEW_SHARDS`."""

Form = Literal["squares", "images", "jpeg"]
"""`squares`: (3, S, S) uint8 as evaluation sees an image; `images`: (H, W, 3) uint8 after `shrink`; `jpeg`: the file of
an image after `shrink` and `jpeg`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """The pack of a dataset, whether it exists or not."""

    folder: Path
    """Its own folder, named after the data and settings."""
    image: ImageConfig
    description: dict[str, Any]
    """All that its pixels depend on."""

    def form(self, split: str) -> Form:
        """What it holds of a split: as few bytes as give training and evaluation their exact pixels."""
        if self.image.jpeg:
            return "jpeg"
        return "images" if split == "train" and self.image.augments else "squares"

    def shard(self, split: str, number: int) -> Path:
        """The path of a shard."""
        return self.folder / f"{split}-{number:05d}.zip"


def plan_pack(dataset: Dataset, image: ImageConfig, packs: Path) -> PackPlan:
    """The pack of a dataset in the folder of all packs.

    Its name hashes the data's fingerprint (which covers the bytes and the order of the images, their settings, and the
    version of the code that decodes and resizes them) and the versions of the libraries that do it.

    Raises:
        DataError: the dataset has features instead of images.
    """
    if any(isinstance(split.reader, RegionReader) for split in dataset.splits.values()):
        raise DataError("the data are precomputed features; a pack is made of images")
    description = {
        "layout": LAYOUT_VERSION,
        "data_fingerprint": dataset.fingerprint,
        "image": asdict(image),
        "libraries": libraries(),
        "images": {name: split.num_images for name, split in dataset.splits.items()},
    }
    # Parts of the splits, as a measurement takes them, are served by the pack of the whole.
    named = {key: value for key, value in description.items() if key != "images"}
    return PackPlan(folder=packs / key_of(named), image=image, description=description)


@cache
def libraries() -> dict[str, str]:
    """The versions of what decodes and resizes images; another version may give other pixels."""
    import PIL
    from PIL import features

    names = ("jpg", "libjpeg_turbo", "zlib", "webp", "jpg_2000", "libtiff")
    versions = {name: features.version(name) for name in names}
    return {"pillow": PIL.__version__} | {name: str(version) for name, version in versions.items() if version}


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
    line = f"{why}; the pack is set aside, and images come from their files (`goal-sweep data pack SWEEP` mends it)"
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
