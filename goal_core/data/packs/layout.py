"""What a pack is called, and what its files contain.

::

    PACKS/<key>/pack.json                   what the pack is of; written when it is complete
    PACKS/<key>/<split>-00000.zip ...       shards: a member for each image, `<number>-<height>x<width>`, not compressed
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import key_of
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import Dataset, RegionReader

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
