"""Read a pack: its index is mapped into memory, and each image is checked when a process first uses it.

Images are read by their position, right into the batch, from the system's cache of files, which all processes share. A
mapped shard would kill the process with a bus error where its disk fails or its file is cut, and its first use costs
several times as much.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import DamagedError, replace_bytes
from goal_core.basics.errors import DataError
from goal_core.basics.sealed_json import json_bytes, read_json
from goal_core.data.config import ImageConfig
from goal_core.data.dataset import Dataset, ImageReader, RegionReader, Split
from goal_core.data.images import decode_bytes
from goal_core.data.packs.layout import DESCRIPTION, ROW, Form, PackPlan, plan_pack, row_check, size_and_times
from goal_core.data.packs.writing import Progress, index_of, read_file, rows_of

_MEND = "run `goal-sweep data pack SWEEP --verify`, or remove the folder"


class PackedImages:
    """A split's images from a pack; an :class:`~goal_core.data.dataset.ImageReader` and a `PackedReader`.

    When a process first uses an image, it compares the checksum of its bytes, and the size and times of its file with
    those when it was packed. If the size or a time differs, it reads the file and compares the content. Pickled, it
    opens the pack again.

    Args:
        source: reads the images from their files.
        plan: the pack.
        split: the split's name.
        rows: images of the split in the pack, which may be more than the source has.
        index: the split's index, (rows,) `ROW`; None reads it from the pack.

    Raises:
        DataError: the split's index is missing, or has another size.
    """

    def __init__(
        self, source: ImageReader, plan: PackPlan, split: str, rows: int, index: NDArray[np.void] | None = None
    ) -> None:
        self._source, self._plan, self._split, self._num_rows = source, plan, split, rows
        self._form: Form = plan.form(split)
        self.holds_squares = self._form == "squares"
        self._rows = _mapped(plan.index(split), rows) if index is None else index
        self._shards: dict[int, FileIO] = {}
        self._used = np.zeros(len(source), dtype=bool)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedImages, (self._source, self._plan, self._split, self._num_rows)

    def __len__(self) -> int:
        return len(self._source)

    def label(self, index: int) -> str:
        """As of the source."""
        return self._source.label(index)

    def file(self, index: int) -> str:
        """As of the source."""
        return self._source.file(index)

    def read(self, index: int) -> NDArray[np.uint8]:
        """One image in its original size, from its file."""
        return self._source.read(index)

    def first(self, num_images: int) -> Self:
        """A reader of the first images only."""
        return type(self)(self._source.first(num_images), self._plan, self._split, self._num_rows)

    def square(self, index: int, into: NDArray[np.uint8]) -> None:
        """Read the square of pixels that evaluation sees of an image into ``into``, (3, S, S) uint8, contiguous."""
        self._read(index, into.reshape(-1))

    def image_shapes(self) -> NDArray[np.int64] | None:
        """Height and width of every prepared image, (N, 2) int64; None where the pack does not have them decoded."""
        if self._form != "images":
            return None
        rows = self._rows[: len(self)]
        return np.stack([rows["height"], rows["width"]], 1).astype(np.int64)

    def prepared(self, index: int) -> NDArray[np.uint8]:
        """One image after ``shrink`` and ``jpeg``, (H, W, 3) uint8 RGB."""
        _, height, width, _, _, size = self._row(index)
        content = np.empty(size, np.uint8)
        self._read(index, content)
        if self._form == "jpeg":
            return decode_bytes(content.tobytes(), f"{self.label(index)} in {self._plan.folder}")
        return content.reshape(height, width, 3)

    def check(self, index: int) -> None:
        """Compare an image with its checksum, and with the content of its file.

        Raises:
            DataError: it is damaged, or the file has changed.
        """
        self._used[index] = False
        self._read(index, np.empty(self._row(index)[5], np.uint8), with_content=True)

    def _row(self, index: int) -> tuple[int, int, int, int, int, int]:
        """Shard, height, width, checksum, offset and bytes of an image."""
        if not self._used[index] and int(self._rows[index]["check"]) != row_check(self._rows[index : index + 1]):
            raise self._damaged(index, self._plan.index(self._split))
        row: tuple[int, int, int, int, int, int] = self._rows[index].item()[:6]
        return row

    def _read(self, index: int, into: NDArray[np.uint8], *, with_content: bool = False) -> None:
        """Read an image's bytes; on first use, compare its checksum, and its file by size and times or by content.

        Raises:
            DataError: they are damaged, or the image's file has changed.
        """
        number, _, _, checksum, offset, size = self._row(index)
        path = self._plan.shard(self._split, number)
        try:
            done = os.preadv(self._shard(number), [into.data], offset)
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror or error}; {_MEND}") from error
        if done != size or size != into.nbytes:
            raise self._damaged(index, path)
        if not self._used[index]:
            if zlib.crc32(into.data) != checksum:
                raise self._damaged(index, path)
            self._check_file(index, with_content=with_content)
            self._used[index] = True

    def _check_file(self, index: int, *, with_content: bool) -> None:
        path, row = self._source.file(index), self._rows[index]
        if not path:
            return
        try:
            status = os.stat(path)
        except OSError as error:
            raise DataError(f"cannot read image {self.label(index)}: {error.strerror or error}") from error
        packed = tuple(row[["file_size", "file_modified_ns", "file_changed_ns"]].item())
        if size_and_times(status) == packed and not with_content:
            return
        if read_file(path, self.label(index))[1][3] != row["file_digest"].tobytes():
            raise DataError(
                f"image {self.label(index)} has changed since it was packed in {self._plan.folder}; {_MEND}"
            )

    def _damaged(self, index: int, path: Path) -> DataError:
        return DataError(f"{path} is damaged: the checksum of image {self.label(index)} does not match; {_MEND}")

    def _shard(self, number: int) -> int:
        """The descriptor of a shard's file, which stays open."""
        if number not in self._shards:
            opened = self._plan.shard(self._split, number).open("rb", buffering=0)
            self._shards.setdefault(number, opened)  # another thread may have opened it, and be reading from it
        return self._shards[number].fileno()


def open_packed(dataset: Dataset, image: ImageConfig | None, packs: Path | None) -> tuple[Dataset, str]:
    """Put the pack of a dataset under its splits, where there is one.

    Opening takes as long for a million images as for a thousand.

    Args:
        dataset: opened from its files.
        image: as of its settings; None where it has features.
        packs: the folder of all packs; None uses none.

    Returns:
        The dataset, with the pack or unchanged, and one line for the log that says where images come from.

    Raises:
        DataError: the pack is damaged.
    """
    if image is None:
        return dataset, "precomputed features"
    if packs is None:
        return dataset, "decoded from their files"
    plan = plan_pack(dataset, image, packs)
    try:
        stated = read_json(plan.folder / DESCRIPTION)
    except DamagedError as error:
        raise DataError(f"{error}; {_MEND}") from error
    if stated is None:
        return dataset, f"decoded from their files (no pack {plan.folder}; `goal-sweep data pack` makes one)"
    if "files" not in stated:
        return dataset, f"decoded from their files (pack {plan.folder} is not complete; `goal-sweep data pack` ends it)"
    for name, size in stated["files"].items():
        if (problem := _size_problem(plan.folder / name, size)) is not None:
            raise DataError(problem)
    splits = {}
    for name, split in dataset.splits.items():
        if isinstance(split.reader, RegionReader):
            raise DataError("the data are precomputed features; a pack is made of images")
        rows = stated["images"][name]
        if rows < split.num_images:
            raise DataError(f"{plan.folder} has {rows} images of split {name!r}, not {split.num_images}; {_MEND}")
        splits[name] = replace(split, reader=PackedImages(split.reader, plan, name, rows))
    forms = ", ".join(f"{name} {plan.form(name)}" for name in splits)
    return replace(dataset, splits=splits), f"pack {plan.folder} ({forms})"


def verify_pack(dataset: Dataset, plan: PackPlan, progress: Progress = lambda split, done, total: None) -> list[str]:
    """Read all that is packed, and remove what is damaged or of changed images, so that `write_pack` writes it again.

    The finished shards of a pack that is not complete are read, too.

    Returns:
        What was wrong, one line for each file.
    """
    problems: list[str] = []
    damaged: set[Path] = set()
    try:
        stated = read_json(plan.folder / DESCRIPTION) or {}
    except DamagedError as error:
        stated = {}
        problems.append(str(error))
        damaged.add(plan.folder / DESCRIPTION)
    sizes = dict(stated.get("files", {}))
    if sizes:
        sizes |= {plan.index(name).name: images * ROW.itemsize for name, images in stated["images"].items()}
    for name, size in sizes.items():
        if (problem := _size_problem(plan.folder / name, size)) is not None:
            problems.append(problem)
            damaged.add(plan.folder / name)
    for split in dataset.splits.values():
        problems += _verify_split(split, plan, stated.get("images_per_shard", {}), damaged, progress)
    if damaged and sizes:  # nobody uses the pack until it is whole again
        begun = {key: value for key, value in stated.items() if key != "files"}
        replace_bytes(plan.folder / DESCRIPTION, json_bytes(begun))
    for path in damaged:
        path.unlink(missing_ok=True)
    return problems


def _verify_split(
    split: Split, plan: PackPlan, per_shard: dict[str, int], damaged: set[Path], progress: Progress
) -> list[str]:
    """What is wrong with the finished shards of a split, which are added to ``damaged``."""
    index = None if plan.index(split.name) in damaged else index_of(plan, split.name)
    # Where pack.json is lost, the index still tells how many images a shard has.
    each = per_shard.get(split.name) or (0 if index is None else int(np.count_nonzero(index["shard"] == 0)))
    if isinstance(split.reader, RegionReader) or not each:
        return []
    known, problems = np.zeros(split.num_images, ROW), []
    reader = PackedImages(split.reader, plan, split.name, split.num_images, known)
    for number, start in enumerate(range(0, split.num_images, each)):
        stop = min(start + each, split.num_images)
        shard, rows = plan.shard(split.name, number), rows_of(plan, split.name, number, None)
        if rows is None and index is not None:
            rows = index[start:stop]  # by position, because a damaged row may name another shard
        if shard not in damaged and shard.exists() and rows is not None and len(rows) == stop - start:
            known[start:stop] = rows
            for image in range(start, stop):
                try:
                    reader.check(image)
                except DataError as error:
                    problems.append(str(error))
                    damaged.add(shard)
                    break
                progress(split.name, image + 1, split.num_images)
        progress(split.name, stop, split.num_images)
    return problems


def _mapped(path: Path, rows: int) -> NDArray[np.void]:
    """A split's index, mapped into memory."""
    if (problem := _size_problem(path, rows * ROW.itemsize)) is not None:
        raise DataError(problem)
    return np.asarray(np.memmap(path, ROW, "r", shape=(rows,)))


def _size_problem(path: Path, size: int) -> str | None:
    try:
        there = path.stat().st_size
    except OSError as error:
        return f"cannot read {path}: {error.strerror or error}; {_MEND}"
    return None if there == size else f"{path} is damaged: it has {there} bytes instead of {size}; {_MEND}"
