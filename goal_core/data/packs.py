"""Packs: a dataset's images decoded and resized once, in a few large files that every process reads.

::

    PACKS/<key>/pack.json                   what the pack is of; written when it is complete
    PACKS/<key>/<split>-00000.zip ...       shards: a member for each image, not compressed,
                                            `<key>/<split>/<number>-<its shape>`

A pack is named by a hash of all that its pixels depend on: the data's fingerprint (which covers the bytes and the order
of the images, their settings, and the version of the code that decodes them) and the libraries. It is a cache: where a
shard is damaged or gone, it is removed, and the images come from their files. The archive compares each image with its
checksum whenever it is read. A mapped shard would kill the process where its disk fails or its file is cut.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.errors import first_line, warn
from goal_sweep.goal_core.basics.files import json_bytes, key_of, read_json
from goal_sweep.goal_core.data.config import ImageConfig
from goal_sweep.goal_core.data.dataset import Dataset, Split
from goal_sweep.goal_core.data.transforms import transform_of

LAYOUT_VERSION = 8
DESCRIPTION = "pack.json"
FEW_SHARDS = 128
"""A split has at most so many shards: each process keeps those open that it has read."""
PER_SHARD = 512
"""Images of a shard, which a killed writer loses at most; more where there would be more than :data:`FEW_SHARDS`."""
_TOGETHER = 64
"""Images that are decoded while the ones before them are written, and from which the size of all is estimated."""

Progress = Callable[[str, int, int], None]
"""Called with the name of a split, how many of its images are done, and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackPlan:
    """The pack of a dataset, whether it exists or not."""

    folder: Path
    """Its own folder, named after the data and settings."""
    image: ImageConfig
    description: dict[str, Any]
    """All that its pixels depend on."""

    def form(self, split: str) -> Literal["squares", "images"]:
        """What it holds of a split, as few bytes as give training and evaluation their exact pixels.

        `squares`: (3, S, S) uint8 as evaluation sees an image; `images`: (H, W, 3) uint8 after `shrink`.
        """
        return "images" if split == "train" and self.image.augments else "squares"

    def shard(self, split: str, number: int) -> Path:
        """The path of a shard."""
        return self.folder / f"{split}-{number:05d}.zip"


def plan_pack(dataset: Dataset, image: ImageConfig, packs: Path) -> PackPlan:
    """The pack of a dataset of images in the folder of all packs."""
    description = {"layout": LAYOUT_VERSION, "data_fingerprint": dataset.fingerprint, "image": asdict(image)}
    description["libraries"] = libraries()
    return PackPlan(folder=packs / key_of(description), image=image, description=description)


@cache
def libraries() -> dict[str, str]:
    """The versions of what decodes and resizes images; another version may give other pixels."""
    import PIL
    from PIL import features

    names = ("jpg", "libjpeg_turbo", "zlib", "webp", "jpg_2000", "libtiff")
    versions = {name: features.version(name) for name in names}
    return {"pillow": PIL.__version__} | {name: str(version) for name, version in versions.items() if version}


class PackedSplit:
    """The images of a split in a pack. Pickled, it opens the pack again."""

    def __init__(self, plan: PackPlan, split: str, per_shard: int) -> None:
        self._of = self._plan, self._split, self._per_shard = plan, split, per_shard
        self._shards: dict[tuple[int, int], ZipFile] = {}
        self._is_damaged = False

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedSplit, self._of

    def __call__(self, index: int) -> NDArray[np.uint8] | None:
        """One image in the pack's form; None where the pack is damaged."""
        if self._is_damaged:
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
            place, _, shape = member.filename.partition("-")
            if place != _place(self._plan, self._split, index):
                raise atomic.DamagedError(f"it has {place} where image {index} should be")
            return np.frombuffer(shard.read(member), np.uint8).reshape([int(side) for side in shape.split("x")])
        except Exception as error:  # which kind, depends on the damage
            self._is_damaged = True
            invalidate(self._plan, path, first_line(error))
            return None


def _place(plan: PackPlan, split: str, index: int) -> str:
    """The name of an image in a shard: a shard of another pack or split has none of it."""
    return f"{plan.folder.name}/{split}/{index}"


def invalidate(plan: PackPlan, path: Path, why: str) -> None:
    """Let nobody else use a pack of which a file is damaged, remove that file, and say so."""
    warn(f"{path} is damaged or gone ({why}); images come from their files (`goal-sweep data pack SWEEP` mends it)")
    with suppress(OSError):
        (plan.folder / DESCRIPTION).unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def open_packed(dataset: Dataset, image: ImageConfig | None, packs: Path | None) -> tuple[Dataset, str]:
    """Put the pack of a dataset beside its splits, where there is one; that takes no longer for a million images.

    One line for the log says where images come from.
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
        splits = dict(dataset.splits)
        for name, split in splits.items():
            packed = PackedSplit(plan, name, stated["per_shard"][name])
            splits[name] = replace(split, packed=packed, holds_squares=plan.form(name) == "squares")
    except (atomic.DamagedError, atomic.StorageError, KeyError) as error:
        invalidate(plan, plan.folder / DESCRIPTION, str(error))
        return dataset, f"decoded from their files ({error})"
    forms = ", ".join(f"{name} {plan.form(name)}" for name in splits)
    return replace(dataset, splits=splits), f"pack {plan.folder} ({forms})"


def estimate_bytes(dataset: Dataset, plan: PackPlan) -> dict[str, int]:
    """The bytes of each split in a pack, from a sample of its images, which is exact for squares."""
    sizes = dict[str, int]()
    for name, split in dataset.splits.items():
        sample = range(0, split.num_images, -(-split.num_images // _TOGETHER))
        sizes[name] = -(-split.num_images * sum(_image(split, plan, index).nbytes for index in sample) // len(sample))
    return sizes


def _image(split: Split, plan: PackPlan, index: int) -> NDArray[np.uint8]:
    """One image in the pack's form."""
    transform, pixels = transform_of(plan.image), split.load_image(index)
    is_square = plan.form(split.name) == "squares"
    return transform.for_evaluation(pixels).numpy() if is_square else transform.shrunk(pixels)


def write_pack(
    dataset: Dataset,
    plan: PackPlan,
    *,
    workers: int = 0,
    per_shard: int = PER_SHARD,
    progress: Progress = lambda split, done, total: None,
) -> int:
    """Write a pack, or what is missing of it, shard by shard; gives its bytes.

    Killed at any moment and called again, it continues, and the files are the same. It decodes in ``workers`` threads,
    by default one on each core, and puts at least ``per_shard`` images in a shard.
    """
    atomic.make_folder(plan.folder)
    atomic.remove_leftovers(plan.folder)
    advice = "free space, name another folder with GOAL_SWEEP_PACKS, or shrink the images (data.image.shrink)"
    atomic.check_space(plan.folder, sum(estimate_bytes(dataset, plan).values()), "*.zip", advice)
    sizes = {name: max(per_shard, -(-split.num_images // FEW_SHARDS)) for name, split in dataset.splits.items()}
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for name, split in dataset.splits.items():
            for number, start in enumerate(range(0, split.num_images, sizes[name])):
                images, path = range(start, min(start + sizes[name], split.num_images)), plan.shard(name, number)
                if not path.exists():
                    _write_shard(path, split, plan, images, pool, progress)
                progress(name, images.stop, split.num_images)
    atomic.replace_bytes(plan.folder / DESCRIPTION, json_bytes({**plan.description, "per_shard": sizes}))
    return sum(path.stat().st_size for path in plan.folder.glob("*.zip"))


def _write_shard(
    path: Path, split: Split, plan: PackPlan, images: range, pool: ThreadPoolExecutor, progress: Progress
) -> None:
    """Write a shard. Every try makes all images again."""

    def write(temporary: Path) -> None:
        with ZipFile(temporary, "w") as shard:
            for start in range(images.start, images.stop, _TOGETHER):
                here = range(start, min(start + _TOGETHER, images.stop))
                for index, made in zip(here, pool.map(partial(_image, split, plan), here), strict=True):
                    name = f"{_place(plan, split.name, index)}-{'x'.join(map(str, made.shape))}"
                    shard.writestr(ZipInfo(name), made.tobytes())
                progress(split.name, start, split.num_images)

    atomic.replace_with(path, write)
