"""Write a pack: every image once, shard by shard, so that a process killed at any point loses one shard at most."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import (
    DamagedError,
    check_space,
    make_folder,
    remove_leftovers,
    replace_bytes,
    replace_with,
)
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import json_bytes, read_json
from goal_core.data.dataset import Dataset, Split
from goal_core.data.images import encode_jpeg, transform_of
from goal_core.data.packs.layout import DESCRIPTION, END, FEW_SHARDS, ROW, SHARD_BYTES, PackPlan
from goal_core.data.packs.reading import Shard

Progress = Callable[[str, int, int], None]
"""Called with what is counted (images of a split, or shards), how many are done, and how many there are."""
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
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda split, done, total: None,
) -> int:
    """Write a pack, or what is missing of it.

    Killed at any moment and called again, it continues, and the files are the same. Shards whose size or rows are
    damaged are written again; :func:`verify_pack` removes those whose images are.

    Args:
        dataset: images with captions.
        plan: the pack of this dataset.
        workers: threads that decode, 0 for one on each core.
        shard_bytes: about how large a shard is.
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
    per_shard = _images_per_shard(dataset, plan, shard_bytes)
    shards = {
        plan.shard(split.name, number): (split, range(start, min(start + per_shard[split.name], split.num_images)))
        for split in dataset.splits.values()
        for number, start in enumerate(range(0, split.num_images, per_shard[split.name]))
    }
    problems: list[str] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for path, (split, images) in shards.items():
            if not _is_whole(path, len(images)):
                make, tell = partial(_image, split, plan), partial(_tell, progress, split)
                problems += _write_shard(path, make, images, pool, tell)
            _tell(progress, split, images.stop)
    if problems:
        raise BrokenImagesError(problems)
    return _complete(plan, {path: len(images) for path, (_, images) in shards.items()})


def _images_per_shard(dataset: Dataset, plan: PackPlan, shard_bytes: int) -> dict[str, int]:
    """How many images a shard of each split has, as it was decided when the pack was begun."""
    begun, is_new = read_json(plan.folder / DESCRIPTION), False
    if begun is None:
        sizes, per_shard, is_new = estimate_bytes(dataset, plan), {}, True
        for name, split in dataset.splits.items():
            each = max(1, sizes[name] // split.num_images)
            per_shard[name] = max(1, max(shard_bytes, sizes[name] // FEW_SHARDS) // each)
        begun = {**plan.description, "images_per_shard": per_shard, "estimated_bytes": sum(sizes.values())}
    advice = "name another folder with GOAL_SWEEP_PACKS, or shrink the images (data.image.shrink, data.image.jpeg)"
    check_space(plan.folder, begun["estimated_bytes"], "*.bin", f"free space, {advice}")
    if is_new:
        replace_bytes(plan.folder / DESCRIPTION, json_bytes(begun))
    decided: dict[str, int] = begun["images_per_shard"]
    return decided


def _tell(progress: Progress, split: Split, done: int) -> None:
    progress(split.name, done, split.num_images)


def _is_whole(path: Path, images: int) -> bool:
    """Whether a shard is there with rows of all its images, and has the size that these state."""
    try:
        rows = Shard(path).rows
    except DataError:
        return False
    return len(rows) == images and int(rows["bytes"].sum()) + rows.nbytes + END.itemsize == path.stat().st_size


def _write_shard(
    path: Path,
    make: Callable[[int], _Image | str],
    images: range,
    pool: ThreadPoolExecutor,
    tell: Callable[[int], None],
) -> list[str]:
    """Write a shard, or nothing if an image of it is broken: what is wrong. Every try makes all images again."""
    problems: list[str] = []

    def write(temporary: Path) -> None:
        problems.clear()
        rows: list[NDArray[np.void]] = []
        with temporary.open("wb") as file:
            for start in range(images.start, images.stop, _AHEAD):
                for made in pool.map(make, range(start, min(start + _AHEAD, images.stop))):
                    if isinstance(made, str):
                        problems.append(made)
                    elif not problems:
                        content, height, width = made
                        row = height, width, zlib.crc32(content), file.tell(), len(content)
                        rows.append(np.array([row], ROW))
                        file.write(content)
                tell(start)
            if problems:
                raise BrokenImagesError(problems)
            together = np.concatenate(rows).tobytes()
            file.write(together + np.array([(len(rows), zlib.crc32(together))], END).tobytes())

    with suppress(BrokenImagesError):
        replace_with(path, write)
    return problems


def _complete(plan: PackPlan, shards: dict[Path, int]) -> int:
    """State the sizes of all shards. Only then is the pack used.

    Raises:
        DataError: a shard is not there as it was written.
    """
    for path, images in shards.items():
        if not _is_whole(path, images):
            raise DataError(
                f"{path} is not as it was written; another process may have changed the pack: run `goal-sweep data "
                "pack SWEEP --verify` when no other one is running"
            )
    sizes = {path.name: path.stat().st_size for path in shards}
    begun = read_json(plan.folder / DESCRIPTION) or {}
    replace_bytes(plan.folder / DESCRIPTION, json_bytes({**begun, "files": sizes}))
    return sum(sizes.values())


def verify_pack(plan: PackPlan, progress: Progress = lambda what, done, total: None) -> list[str]:
    """Read all that is packed, and remove what is damaged, so that `write_pack` writes it again.

    The finished shards of a pack that is not complete are read, too.

    Returns:
        What was wrong, one line for each file.
    """
    problems: list[str] = []
    try:
        stated = read_json(plan.folder / DESCRIPTION) or {}
    except DamagedError as error:
        stated, problems = {}, [str(error)]
        (plan.folder / DESCRIPTION).unlink()
    names = sorted({*stated.get("files", {}), *(path.name for path in plan.folder.glob("*.bin"))})
    for done, name in enumerate(names, start=1):
        try:
            Shard(plan.folder / name).verify()
        except DataError as error:
            problems.append(str(error))
            (plan.folder / name).unlink(missing_ok=True)
        progress("shards", done, len(names))
    if problems and "files" in stated:  # nobody uses the pack until it is whole again
        begun = {key: value for key, value in stated.items() if key != "files"}
        replace_bytes(plan.folder / DESCRIPTION, json_bytes(begun))
    return problems
