"""Write a pack: every image once, shard by shard, so that a process killed at any point loses one shard at most."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from zipfile import ZipFile, ZipInfo

import numpy as np

from goal_core.basics.atomic import check_space, make_folder, remove_leftovers, replace_bytes, replace_with
from goal_core.basics.errors import DataError, first_line
from goal_core.basics.sealed_json import json_bytes
from goal_core.data.dataset import Dataset, Split
from goal_core.data.images import encode_jpeg, transform_of
from goal_core.data.packs.pack import DESCRIPTION, FEW_SHARDS, PER_SHARD, PackPlan

Progress = Callable[[str, int, int], None]
"""Called with the name of a split, how many of its images are done, and how many there are."""
_SAMPLE = 64
"""Images from which the size of the others is estimated."""
_AHEAD = 64
"""Images that are decoded while the ones before them are written."""


class BrokenImagesError(DataError):
    """Images of a dataset cannot be read; the pack lacks the shards that would hold them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"{len(problems)} images cannot be read, the first: {problems[0]}")
        self.problems = problems
        """One line for each."""


_Image = tuple[bytes, int, int]
"""An image as a pack stores it: content, height and width."""


def estimate_bytes(dataset: Dataset, plan: PackPlan, sample: int = _SAMPLE) -> dict[str, int]:
    """The bytes of each split in a pack: exact for squares, else from a sample of its images.

    Raises:
        DataError: none of the sample can be read.
    """
    return {name: split.num_images * _mean_bytes(split, plan, sample) for name, split in dataset.splits.items()}


def _mean_bytes(split: Split, plan: PackPlan, sample: int) -> int:
    if plan.form(split.name) == "squares":
        return 3 * plan.image.size**2
    chosen = np.unique(np.linspace(0, split.num_images - 1, sample).astype(np.int64)).tolist()
    sizes = [len(made[0]) for index in chosen if not isinstance(made := _image(split, plan, index), str)]
    if not sizes:
        raise DataError(f"no image of split {split.name!r} can be read, the first is {split.reader.label(chosen[0])}")
    return -(-sum(sizes) // len(sizes))


def _image(split: Split, plan: PackPlan, index: int) -> _Image | str:
    """One image, ready to be written, or what is wrong with it, so that one broken image hides no other."""
    transform, form = transform_of(plan.image), plan.form(split.name)
    try:
        pixels = split.load_image(index)
    except DataError as error:
        return str(error)
    if form == "squares":
        square = transform.for_evaluation(transform.prepared(pixels)).numpy()
        return square.tobytes(), square.shape[1], square.shape[2]
    pixels = transform.shrunk(pixels)
    content = encode_jpeg(pixels, transform.jpeg) if form == "jpeg" else pixels.tobytes()
    return content, pixels.shape[0], pixels.shape[1]


def write_pack(
    dataset: Dataset,
    plan: PackPlan,
    *,
    workers: int = 0,
    per_shard: int = PER_SHARD,
    progress: Progress = lambda split, done, total: None,
) -> int:
    """Write a pack, or what is missing of it.

    Killed at any moment and called again, it continues, and the files are the same. All that is there is compared with
    its checksums, and what is damaged is written again.

    Args:
        dataset: images with captions.
        plan: the pack of this dataset.
        workers: threads that decode, 0 for one on each core.
        per_shard: images of a shard, at least.
        progress: called after every few images.

    Returns:
        Bytes of the pack.

    Raises:
        BrokenImagesError: images cannot be read. All shards without them are written; the pack is not complete.
        DataError: the disk is too small.
        StorageError: a file cannot be written.
    """
    make_folder(plan.folder)
    remove_leftovers(plan.folder)
    advice = "name another folder with GOAL_SWEEP_PACKS, or shrink the images (data.image.shrink, data.image.jpeg)"
    needed = sum(estimate_bytes(dataset, plan).values())
    check_space(plan.folder, needed, "*.zip", f"free space, {advice}")
    sizes = {name: max(per_shard, -(-split.num_images // FEW_SHARDS)) for name, split in dataset.splits.items()}
    problems: list[str] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for name, split in dataset.splits.items():
            for number, start in enumerate(range(0, split.num_images, sizes[name])):
                images, path = range(start, min(start + sizes[name], split.num_images)), plan.shard(name, number)
                if not _is_whole(path, len(images)):
                    problems += _write_shard(path, split, plan, images, pool, progress)
                progress(name, images.stop, split.num_images)
    if problems:
        raise BrokenImagesError(problems)
    replace_bytes(plan.folder / DESCRIPTION, json_bytes({**plan.description, "per_shard": sizes}))
    return sum(path.stat().st_size for path in plan.folder.glob("*.zip"))


def _is_whole(path: Path, images: int) -> bool:
    """Whether a shard is there with all of its images; damage is said in this process's log."""
    try:
        with ZipFile(path) as shard:
            damaged, there = shard.testzip(), len(shard.infolist())
            if damaged is None and there == images:
                return True
            problem = f"image {damaged} does not match its checksum" if damaged else f"{there} images, not {images}"
    except FileNotFoundError:
        return False
    except Exception as error:  # which kind, depends on the damage
        problem = first_line(error)
    os.write(2, f"{path} is damaged: {problem}; it is written again\n".encode())
    return False


def _write_shard(
    path: Path, split: Split, plan: PackPlan, images: range, pool: ThreadPoolExecutor, progress: Progress
) -> list[str]:
    """Write a shard, or nothing if an image of it is broken: what is wrong. Every try makes all images again."""
    problems, make = list[str](), partial(_image, split, plan)

    def write(temporary: Path) -> None:
        problems.clear()
        with ZipFile(temporary, "w") as shard:
            for start in range(images.start, images.stop, _AHEAD):
                here = range(start, min(start + _AHEAD, images.stop))
                for index, made in zip(here, pool.map(make, here), strict=True):
                    if isinstance(made, str):
                        problems.append(made)
                    elif not problems:
                        content, height, width = made
                        shard.writestr(ZipInfo(f"{index}-{height}x{width}"), content)
                progress(split.name, start, split.num_images)
        if problems:
            raise BrokenImagesError(problems)

    with suppress(BrokenImagesError):
        replace_with(path, write)
    return problems
