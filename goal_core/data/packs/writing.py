"""Write a pack: every image once, shard by shard, so that a process killed at any point loses one shard at most."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import (
    make_folder,
    read_bytes,
    remove_leftovers,
    replace_bytes,
    replace_with,
    storage_errors,
)
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import json_bytes, read_json
from goal_core.data.dataset import Dataset, ImageReader, RegionReader, Split
from goal_core.data.images import ImageTransform, decode_bytes, encode_jpeg, transform_of
from goal_core.data.packs.layout import (
    DESCRIPTION,
    FEW_SHARDS,
    ROW,
    SHARD_BYTES,
    Form,
    PackPlan,
    file_digest,
    row_check,
    size_and_times,
)

Progress = Callable[[str, int, int], None]
"""Called with the split's name, the images done and all images of the split."""
_SAMPLE = 64
"""Images of which the size of the others is estimated."""
_AHEAD = 64
"""Images that are decoded while the ones before them are written."""


FileStamp = tuple[int, int, int, bytes]
"""A file's size, times and digest, as in :data:`~goal_core.data.packs.layout.ROW`."""


class BrokenImagesError(DataError):
    """Images of a dataset cannot be read; the pack lacks the shards that would hold them."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(f"{len(problems)} images cannot be read, the first: {problems[0]}")
        self.problems = problems
        """One line for each."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """One image, ready to be written."""

    content: bytes
    height: int
    width: int
    stamp: FileStamp
    """Of its file."""


def estimate_bytes(dataset: Dataset, plan: PackPlan, sample: int = _SAMPLE) -> dict[str, int]:
    """The bytes of each split in a pack: exact for squares, else from a sample of its images.

    Raises:
        DataError: the dataset has features instead of images, or none of the sample can be read.
    """
    return {name: split.num_images * _mean_bytes(split, plan, sample) for name, split in dataset.splits.items()}


def _mean_bytes(split: Split, plan: PackPlan, sample: int) -> int:
    if plan.form(split.name) == "squares":
        return 3 * plan.image.size**2
    work = _Work(split, plan)
    chosen = np.unique(np.linspace(0, split.num_images - 1, sample).astype(np.int64)).tolist()
    sizes = [len(made.content) for made in map(work, chosen) if isinstance(made, _Packed)]
    if not sizes:
        raise DataError(f"no image of split {split.name!r} can be read, the first is {split.reader.label(chosen[0])}")
    return -(-sum(sizes) // len(sizes))


def write_pack(
    dataset: Dataset,
    plan: PackPlan,
    *,
    workers: int = 0,
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda split, done, total: None,
) -> int:
    """Write a pack, or what is missing of it.

    Killed at any moment and called again, it continues, and the files are the same. Damaged shards whose size is wrong
    are written again; :func:`~goal_core.data.packs.reading.verify_pack` removes those whose content is.

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
        DataError: the dataset has features instead of images, or the disk is too small.
        StorageError: a file cannot be written.
    """
    make_folder(plan.folder)
    remove_leftovers(plan.folder)
    per_shard = _images_per_shard(dataset, plan, shard_bytes)
    problems: list[str] = []
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        for split in dataset.splits.values():
            problems += _write_split(split, plan, per_shard[split.name], pool, progress)
    if problems:
        raise BrokenImagesError(problems)
    return _complete(dataset, plan, per_shard)


def _images_per_shard(dataset: Dataset, plan: PackPlan, shard_bytes: int) -> dict[str, int]:
    """How many images a shard of each split has, as it was decided when the pack was begun."""
    begun = read_json(plan.folder / DESCRIPTION)
    if begun is not None:
        per_shard: dict[str, int] = begun["images_per_shard"]
        _check_room(plan, begun["estimated_bytes"])
        return per_shard
    sizes = estimate_bytes(dataset, plan)
    _check_room(plan, sum(sizes.values()))
    per_shard = {}
    for name, split in dataset.splits.items():
        each = max(1, sizes[name] // split.num_images)
        per_shard[name] = max(1, max(shard_bytes, sizes[name] // FEW_SHARDS) // each)
    begun = {**plan.description, "images_per_shard": per_shard, "estimated_bytes": sum(sizes.values())}
    replace_bytes(plan.folder / DESCRIPTION, json_bytes(begun))
    return per_shard


def _check_room(plan: PackPlan, needed: int) -> None:
    with storage_errors(plan.folder, "read"):
        written = sum(path.stat().st_size for path in plan.folder.glob("*.bin"))
        free = shutil.disk_usage(plan.folder).free
    if needed - written > free:
        raise DataError(
            f"{plan.folder} has {free / 1e9:.1f} GB free, but the pack takes about {(needed - written) / 1e9:.1f} GB "
            "more; free space, name another folder with GOAL_SWEEP_PACKS, or make the images smaller with "
            "data.image.shrink or data.image.jpeg"
        )


def _write_split(
    split: Split, plan: PackPlan, per_shard: int, pool: ThreadPoolExecutor, progress: Progress
) -> list[str]:
    """Write the shards of a split that are missing; what is wrong with its images."""
    work, problems = _Work(split, plan), []
    index = index_of(plan, split.name)
    for number, start in enumerate(range(0, split.num_images, per_shard)):
        stop = min(start + per_shard, split.num_images)
        if not _is_written(plan, split.name, number, stop - start, rows_of(plan, split.name, number, index)):
            images = partial(_made, work, range(start, stop), pool)
            counted = partial(_count_from, progress, split, start)
            problems += _write_shard(plan, split.name, number, images, counted)
        progress(split.name, stop, split.num_images)
    return problems


def _count_from(progress: Progress, split: Split, start: int, done: int) -> None:
    progress(split.name, start + done, split.num_images)


def rows_path(plan: PackPlan, split: str, number: int) -> Path:
    """The part of the index that belongs to one shard, while the pack is written."""
    return plan.shard(split, number).with_suffix(".rows")


def _is_written(plan: PackPlan, split: str, number: int, images: int, rows: NDArray[np.void] | None) -> bool:
    """Whether a shard is there with rows of all its images, and has the size that these state."""
    try:
        size = plan.shard(split, number).stat().st_size
    except FileNotFoundError:
        return False
    return rows is not None and len(rows) == images and int(rows["bytes"].sum()) == size


def index_of(plan: PackPlan, split: str) -> NDArray[np.void] | None:
    """The index of a pack that was complete; None where there is none, or it ends within a row."""
    return _rows_in(read_bytes(plan.index(split)))


def rows_of(plan: PackPlan, split: str, number: int, index: NDArray[np.void] | None) -> NDArray[np.void] | None:
    """The rows of a shard, as it was written or from the index."""
    rows = _rows_in(read_bytes(rows_path(plan, split, number)))
    if rows is None and index is not None:
        return np.compress(index["shard"] == number, index)
    return rows


def _rows_in(content: bytes | None) -> NDArray[np.void] | None:
    return None if content is None or len(content) % ROW.itemsize else np.frombuffer(content, ROW)


def _made(work: _Work, indices: range, pool: ThreadPoolExecutor) -> Iterator[_Packed | str]:
    """Images ready to be written, in order, a few ahead; or what is wrong with one."""
    for start in range(indices.start, indices.stop, _AHEAD):
        yield from pool.map(work, range(start, min(start + _AHEAD, indices.stop)))


def _write_shard(
    plan: PackPlan,
    split: str,
    number: int,
    images: Callable[[], Iterator[_Packed | str]],
    progress: Callable[[int], None],
) -> list[str]:
    """Write a shard and its rows, or neither if an image of it is broken; every try makes all ``images`` again."""
    rows: list[NDArray[np.void]] = []
    problems: list[str] = []

    def write(path: Path) -> None:
        rows.clear()
        problems.clear()
        with path.open("wb") as file:
            for done, image in enumerate(images(), start=1):
                if isinstance(image, str):
                    problems.append(image)
                elif not problems:
                    rows.append(_append(file, number, image))
                if done % _AHEAD == 0:
                    progress(done)
        if problems:
            raise BrokenImagesError(problems)

    try:
        replace_with(plan.shard(split, number), write)
    except BrokenImagesError:
        return problems
    replace_bytes(rows_path(plan, split, number), b"".join(row.tobytes() for row in rows))
    return []


def _append(file: BinaryIO, number: int, image: _Packed) -> NDArray[np.void]:
    row = np.zeros(1, ROW)
    row["shard"], row["height"], row["width"] = number, image.height, image.width
    row["crc"], row["offset"], row["bytes"] = zlib.crc32(image.content), file.tell(), len(image.content)
    row["file_size"], row["file_modified_ns"], row["file_changed_ns"], row["file_digest"] = image.stamp
    row["check"] = row_check(row)
    file.write(image.content)
    return row


def _complete(dataset: Dataset, plan: PackPlan, per_shard: dict[str, int]) -> int:
    """Put each split's index together and state the sizes of all files. Only then is the pack used.

    Raises:
        DataError: a shard is not there as its rows state it.
    """
    sizes: dict[str, int] = {}
    leftover: list[Path] = []
    for name, split in dataset.splits.items():
        rows = _all_rows(plan, split, per_shard[name])
        replace_bytes(plan.index(name), rows.tobytes())
        numbers = range(-(-split.num_images // per_shard[name]))
        files = [plan.index(name), *(plan.shard(name, number) for number in numbers)]
        sizes |= {path.name: path.stat().st_size for path in files}
        leftover += [rows_path(plan, name, number) for number in numbers]
    begun = read_json(plan.folder / DESCRIPTION) or {}
    replace_bytes(plan.folder / DESCRIPTION, json_bytes({**begun, "files": sizes}))
    for path in leftover:
        path.unlink(missing_ok=True)
    return sum(sizes.values())


def _all_rows(plan: PackPlan, split: Split, per_shard: int) -> NDArray[np.void]:
    """The rows of a split, of which every shard is written.

    A process that packs the same data, and ends first, writes the index before it removes the rows beside the shards.
    So the index is read after them.
    """
    numbers = range(-(-split.num_images // per_shard))
    beside = [rows_of(plan, split.name, number, None) for number in numbers]
    index = index_of(plan, split.name) if any(rows is None for rows in beside) else None
    parts: list[NDArray[np.void]] = []
    for number in numbers:
        rows = rows_of(plan, split.name, number, index) if beside[number] is None else beside[number]
        images = min(per_shard, split.num_images - number * per_shard)
        if rows is None or not _is_written(plan, split.name, number, images, rows):
            raise DataError(
                f"{plan.shard(split.name, number)} is not as it was written; another process may have changed "
                "the pack: run `goal-sweep data pack SWEEP --verify` when no other one is running"
            )
        parts.append(rows)
    return np.concatenate(parts)


class _Work:
    """Makes the content of one image; errors are returned as text, so that one broken image hides no other."""

    def __init__(self, split: Split, plan: PackPlan) -> None:
        if isinstance(split.reader, RegionReader):
            raise DataError("the data are precomputed features; a pack is made of images")
        self._reader: ImageReader = split.reader
        self._transform: ImageTransform = transform_of(plan.image)
        self._form: Form = plan.form(split.name)

    def __call__(self, index: int) -> _Packed | str:
        try:
            pixels, stamp = self._read(index)
        except DataError as error:
            return str(error)
        if self._form == "squares":
            square = self._transform.for_evaluation(self._transform.prepared(pixels)).numpy()
            return _Packed(square.tobytes(), square.shape[1], square.shape[2], stamp)
        pixels = self._transform.shrunk(pixels)
        content = encode_jpeg(pixels, self._transform.jpeg) if self._form == "jpeg" else pixels.tobytes()
        return _Packed(content, pixels.shape[0], pixels.shape[1], stamp)

    def _read(self, index: int) -> tuple[NDArray[np.uint8], FileStamp]:
        path = self._reader.file(index)
        if not path:
            return self._reader.read(index), (0, 0, 0, bytes(16))
        content, stamp = read_file(path, self._reader.label(index))
        return decode_bytes(content, self._reader.label(index)), stamp


def read_file(path: str, label: str) -> tuple[bytes, FileStamp]:
    """The content of an image's file, and its size, times and digest.

    Raises:
        DataError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read()
    except OSError as error:
        raise DataError(f"cannot read image {label}: {error.strerror or error}") from error
    return content, (*size_and_times(status), file_digest(content))
