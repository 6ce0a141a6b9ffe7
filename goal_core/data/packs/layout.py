"""What a pack is called, and what its files contain.

::

    PACKS/<key>/pack.json                   what the pack is of; with the sizes of its files once it is complete
    PACKS/<key>/<split>.index               one `ROW` for each image of the split, in its order
    PACKS/<key>/<split>-00000.bin ...       shards: the images, one after the other

While a pack is written, `<split>-00000.rows` beside each finished shard holds its part of the index.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.errors import DataError
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import DECODE_VERSION, Dataset, RegionReader, Split
from goal_core.data.images import transform_of

LAYOUT_VERSION = 2
DESCRIPTION = "pack.json"
FEW_SHARDS = 128
"""About as many shards as a split has at most: each process keeps those open that it has read."""
SHARD_BYTES = 256 * 2**20
"""What is lost at most when writing is killed; more for a pack of more than :data:`FEW_SHARDS` times this."""

Form = Literal["squares", "images", "jpeg"]
"""`squares`: (3, S, S) uint8 as evaluation sees an image; `images`: (H, W, 3) uint8 after `shrink`; `jpeg`: the file of
an image after `shrink` and `jpeg`."""

ROW = np.dtype(
    [
        ("shard", "<u4"),
        ("height", "<u4"),
        ("width", "<u4"),
        ("crc", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("file_size", "<u8"),
        ("file_modified_ns", "<i8"),
        ("file_changed_ns", "<i8"),
        ("file_digest", "V16"),
        ("check", "<u4"),
    ]
)
"""Where an image lies in which shard, its shape and CRC-32, and its file's size, times and content when it was packed
(zeros where images are generated). `check` is the CRC-32 of the other fields."""
_CHECKED = ROW.fields["check"][1] if ROW.fields else 0


def row_check(row: NDArray[np.void]) -> int:
    """The `check` that a row should have; ``row`` is an array of one."""
    return zlib.crc32(row.tobytes()[:_CHECKED])


def size_and_times(status: os.stat_result) -> tuple[int, int, int]:
    """A file's size, and when its content and its entry last changed, nanoseconds.

    A program can set the first time back, as `cp -p` and `rsync -a` do, but not the second.
    """
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def file_digest(content: bytes) -> bytes:
    """16 bytes that tell a file's content from any other."""
    return hashlib.blake2b(content, digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """The pack of a dataset, whether it exists or not."""

    folder: Path
    """Its own folder, named by what it is of."""
    image: ImageConfig
    description: dict[str, Any]
    """All that its pixels depend on."""

    def form(self, split: str) -> Form:
        """What it holds of a split: as few bytes as give training and evaluation their exact pixels."""
        if self.image.jpeg:
            return "jpeg"
        return "images" if split == "train" and transform_of(self.image).augments else "squares"

    def index(self, split: str) -> Path:
        """The path of a split's index."""
        return self.folder / f"{split}.index"

    def shard(self, split: str, number: int) -> Path:
        """The path of a shard."""
        return self.folder / f"{split}-{number:05d}.bin"


def plan_pack(dataset: Dataset, image: ImageConfig, packs: Path) -> PackPlan:
    """The pack of a dataset in the folder of all packs.

    Its name hashes the data's fingerprint (which covers names, sizes and order of the images, the settings of decoding
    and the version of its code), the transform, and the versions of the libraries that decode and resize.
    """
    transform = transform_of(image)
    description = {
        "layout": LAYOUT_VERSION,
        "data_fingerprint": dataset.fingerprint,
        "decode": DECODE_VERSION,
        "image": asdict(image),
        "transform": {"resampling": transform.resampling.name, "stretches": transform.stretches},
        "libraries": libraries(),
        "images": {name: split.num_images for name, split in dataset.splits.items()},
    }
    # Parts of the splits, as a measurement takes them, are served by the pack of the whole.
    named = {key: value for key, value in description.items() if key != "images"}
    key = hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:16]
    return PackPlan(folder=packs / key, image=image, description=description)


@cache
def libraries() -> dict[str, str]:
    """The versions of what decodes and resizes images; another version may give other pixels."""
    import PIL
    from PIL import features

    names = ("jpg", "libjpeg_turbo", "zlib", "webp", "jpg_2000", "libtiff")
    found = {name: features.version(name) for name in names}
    return {"pillow": PIL.__version__} | {name: str(version) for name, version in found.items() if version}


def files_stamp(split: Split) -> str:
    """Hash the size and times of each image file of a split, and what decodes them; empty where images are generated.

    A dataset's fingerprint does not notice an edit that keeps the size of a file; caches of what is computed from
    images should. A copy of the files has other times, even one that keeps those of the content.

    Raises:
        DataError: a file is gone.
    """
    if isinstance(split.reader, RegionReader):
        return ""
    digest = hashlib.sha256(json.dumps(libraries(), sort_keys=True).encode())
    for index in range(split.num_images):
        path = split.reader.file(index)
        if not path:
            return ""
        try:
            status = os.stat(path)
        except OSError as error:
            raise DataError(f"cannot read image {path}: {error.strerror or error}") from error
        digest.update(f"{size_and_times(status)}\n".encode())
    return digest.hexdigest()[:16]
