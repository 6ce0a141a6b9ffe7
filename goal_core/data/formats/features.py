"""Files of precomputed features and vectors, each row verified whenever it is read, and the importer of embeddings.

An image has either R regions of F numbers or one vector of F numbers; arrays below write both as (N, ..., F).
"""

import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from goal_sweep.goal_core.basics import files
from goal_sweep.goal_core.basics.errors import ChangedDataError, DataError
from goal_sweep.goal_core.data.config import EmbeddingsConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, index_parts
from goal_sweep.goal_core.data.formats.layout import Layout, Listing, dataset_folder, equal_counts, stamped

VECTOR_AXES: Final = ("images", "features")
REGION_AXES: Final = ("images", "regions", "features")
BLOCK = 256
"""Rows that are read at a time."""
REPEATED = "have nearly the features of the row before, as if computed once for each caption; give each image one row"
PADDED = "have regions of nothing but 0, as if padded, which count as all others do"
_NEAR = 1e-4
"""By which part of the largest distance from the mean nearly equal rows differ at most."""
_SIDES, _NO_ARRAY = ("images", "texts"), " is not an .npy file, or is cut short"


def row_digests(file: files.StoredArray) -> NDArray[np.uint8]:
    """SHA-256 of every row, (N, 32)."""
    return np.concatenate([_digests(stored_rows(file, rows)) for rows in index_parts(file.shape[0], BLOCK)])


def stored_rows(file: files.StoredArray, rows: NDArray[np.int64]) -> NDArray[np.floating]:
    """Some rows as they are stored, (B, ..., F), read into memory: a map would end the process if the file is cut."""
    try:
        if file.column:
            values = _parquet(file.path, file.column, *files.stamp_of(file.path))[0]
            if values.shape != file.shape:
                shapes = f"{values.shape}, not {file.shape}"
                raise ChangedDataError(f"{file.path}: column {file.column!r} has the shape {shapes}")
            return values[rows]
        if file.by_columns:
            return _by_columns(file.path, *files.stamp_of(file.path))[rows]
        values = np.empty((len(rows), *file.shape[1:]), file.dtype)
        size = values[:1].nbytes
        with files.opened(file.path) as stored:
            for row, into in zip(rows.tolist(), values, strict=True):
                if os.preadv(stored.fileno(), [into.data.cast("B")], file.begin + row * size) != size:
                    raise ChangedDataError(f"{file.path} is cut short: it has no row {row} any more")
    except DataError as error:
        raise ChangedDataError(str(error)) from error
    return values


def parquet_vectors(path: Path, column: str) -> tuple[files.StoredArray, NDArray[np.int64] | None]:
    """The vectors in a column of a Parquet file, one after the other; and how many each row has where it has a list."""
    values, counts = _parquet(str(path), column, *files.stamp_of(str(path)))
    array = files.StoredArray(path=str(path), shape=values.shape, dtype=values.dtype.str, begin=0, column=column)
    return checked(array, f"{path}: column {column!r}", ("vectors", "numbers")), counts


@lru_cache(maxsize=8)
def _parquet(path: str, column: str, *stamp: int) -> tuple[NDArray[np.floating], NDArray[np.int64] | None]:
    """All vectors of a column, kept in memory: a Parquet file cannot be read row by row."""
    compute, parquet, types = (files.pyarrow(name) for name in ("compute", "parquet", "types"))

    def lengths(lists: Any) -> NDArray[np.int64]:
        if lists.null_count:
            raise ValueError(f"{lists.null_count} are missing")
        return np.asarray(compute.list_value_length(lists))

    says = f"{path}: column {column!r} must hold vectors of equally many numbers"
    with files.opened(path) as file, files.reading(says, ChangedDataError):
        if column not in (names := parquet.read_schema(file).names):
            raise DataError(f"{path} has no column {column!r}; it has {', '.join(names)}")
        found, counts = files.parquet_table(file, columns=[column]).column(column), None
        found.validate(full=True)
        if types.is_nested(found.type.value_type):
            counts, found = lengths(found), compute.list_flatten(found)
        if len(widths := np.unique(lengths(found)).tolist()) != 1:
            raise ValueError(f"they have {', '.join(map(str, widths[:9]))} numbers" if widths else "there are none")
        if missing := compute.list_flatten(found).null_count:
            raise ValueError(f"{missing} numbers are missing (null)")
        return compute.list_flatten(found).to_numpy().reshape(len(found), widths[0]), counts


@lru_cache(maxsize=8)
def _by_columns(path: str, *stamp: int) -> NDArray[np.floating]:
    """An array that is stored column by column, kept in memory row by row."""
    with files.opened(path) as file, files.reading(f"{path} is cut short", ChangedDataError):
        return np.ascontiguousarray(npy.read_array(file, allow_pickle=False))


def _digests(values: NDArray[np.floating]) -> NDArray[np.uint8]:
    digests = b"".join(hashlib.sha256(row.data).digest() for row in values)
    return np.frombuffer(digests, np.uint8).reshape(len(values), 32)


@dataclass(frozen=True, slots=True, eq=False)
class FeatureRows:
    """Reads images' features from a file; a :class:`~goal_core.data.dataset.RegionReader`."""

    file: files.StoredArray
    ids: Sequence[str]
    """Ids of the images."""
    repeated: NDArray[np.int64] | None
    """The first row of each image in a file that repeats it for each of its captions; None where each has one row."""
    digests: NDArray[np.uint8]
    """SHA-256 of the row of each image, (N, 32)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of each image's features: (R, F) or (F,)."""
        return self.file.shape[1:]

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, indices: NDArray[np.int64]) -> NDArray[np.float32]:
        """Features of some images, (B, ..., F) float32; a `ChangedDataError` names the first that is another now."""
        stored = stored_rows(self.file, self._rows_of(indices))
        same = (_digests(stored) == self.digests[indices]).all(axis=1)
        if not same.all():
            label = self.label(int(indices[np.argmin(same)]))
            mend = "if they are right now, touch the file"
            raise ChangedDataError(f"the features of {label} are not those that were indexed; {mend}")
        return stored.astype(np.float32, copy=False)

    def fresh(self, indices: Sequence[int]) -> tuple[bytes, list[list[int]], list[str], list[tuple[str, str]]]:
        """SHA-256 of some images' features as they are now, together; a line for each broken one; what is to be said.

        Broken are those that are not finite, and vectors without a direction, which cannot be normalised.
        """
        values = stored_rows(self.file, self._rows_of(np.asarray(indices)))
        with np.errstate(over="ignore"):
            flat = values.astype(np.float32, copy=False).reshape(len(values), -1)
        what, wrong = "regions", {"not finite": ~np.isfinite(flat).all(axis=1)}
        if len(self.shape) == 1:
            what = "features"
            wrong["all 0, so they have no direction"] = ~flat.any(axis=1)
        found = ((row, how) for how, rows in wrong.items() for row in np.flatnonzero(rows).tolist())
        problems = [f"{what} of {self.label(indices[row])} are {how}" for row, how in found]
        with np.errstate(all="ignore"):
            change, size = (np.abs(own).max(axis=1) for own in (np.diff(flat, axis=0), (flat - flat.mean(axis=0))[1:]))
        near = np.flatnonzero((change > 0) & (change < _NEAR * size)) + 1
        said = [(self.label(indices[row]), REPEATED) for row in near.tolist()]
        if len(self.shape) > 1:
            padded = np.flatnonzero((~values.any(axis=-1)).any(axis=-1))
            said += [(self.label(indices[row]), PADDED) for row in padded.tolist()]
        return _digests(values).tobytes(), [], problems, said

    def label(self, index: int) -> str:
        """The image's id and its row in the file."""
        return f"image {self.ids[index]} (row {self._rows_of(np.asarray(index))} of {self.file.path})"

    def _rows_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return indices if self.repeated is None else self.repeated[indices]


def read_region_header(path: Path, axes: tuple[str, ...], kinds: str = "f") -> files.StoredArray:
    """Read the header of an `.npy` file, and check that all of its data is there, with such numbers and axes."""
    with files.opened(path) as file, files.reading(f"{path}{files.seems(path) or _NO_ARRAY}"):
        is_first = npy.read_magic(file) == (1, 0)
        shape, by_columns, dtype = (npy.read_array_header_1_0 if is_first else npy.read_array_header_2_0)(file)
        begin, (size, *_) = file.tell(), files.stamp_of(file.fileno())
    array = files.StoredArray(path=str(path), shape=shape, dtype=dtype.str, begin=begin, by_columns=by_columns)
    checked(array, path, axes, kinds)
    if size != (right := begin + math.prod(shape) * dtype.itemsize):
        how = "cut short" if size < right else "longer than its header says"
        raise DataError(f"{path} is {how}: {size} bytes, not {right}, for shape {shape} {dtype}")
    return array


def checked(array: files.StoredArray, where: object, axes: tuple[str, ...], kinds: str = "f") -> files.StoredArray:
    """An array that has such numbers and axes; a `DataError` says where one has not."""
    dtype = np.dtype(array.dtype)
    if dtype.kind not in kinds or dtype.itemsize > 8:
        must = "floating point" if kinds == "f" else "whole"
        raise DataError(f"{where} must contain {must} numbers of at most 64 bits, got {dtype}")
    if len(array.shape) != len(axes) or min(array.shape) < 1:
        raise DataError(f"{where} must have shape ({', '.join(axes)}), got {array.shape}")
    return array


def embeddings(config: EmbeddingsConfig) -> Layout:
    """Read the headers of the vectors' files, and which text belongs to which image."""
    root = dataset_folder(config.root)
    ends = ("_images.npy", "_texts.npy", "_owners.npy", ".safetensors", ".parquet")
    stamps = stamped(root, (root / f"{split}{end}" for split in SPLIT_NAMES for end in ends))
    splits = {split: partial(_split, root, split) for split in SPLIT_NAMES}
    return Layout(root=root, files=stamps, splits=splits, split=_not_read(root, ends))


def _not_read(root: Path, ends: Sequence[str]) -> str:
    """What lies beside the vectors and looks like a part of the data, in words; empty where there is nothing."""
    others = {one.name for split in SPLIT_NAMES for one in root.glob(f"{split}_*.*")}
    others -= {f"{split}{end}" for split in SPLIT_NAMES for end in ends}
    has_table = False
    for path in (root / f"{split}{end}" for split in SPLIT_NAMES for end in ends[3:]):
        with suppress(DataError), files.opened(path) as file, files.reading(str(path)):
            has_table |= (table := path.suffix == ".parquet")
            known = {"image", "texts"} if table else {*_SIDES, "owners"}
            names = files.pyarrow("parquet").read_schema(file).names if table else files.header_of(file)[0]
            others |= {f"{one} of {path.name}" for one in {*names} - known}
    mend = "" if has_table else "; the image of each text is in `owners`"
    return f"not read: {', '.join(sorted(others)[:3])}{mend}" if others else ""


def _split(root: Path, split: str) -> Listing:
    whole, own = root / f"{split}.safetensors", root / f"{split}_owners.npy"
    owners, each = None, None
    several = [one for end in (".parquet", ".safetensors", "_images.npy") if (one := root / f"{split}{end}").exists()]
    if len(several) > 1:
        raise DataError(f"{several[0]} and {several[1]} both hold the vectors of {split}; delete or move one")
    if (table := root / f"{split}.parquet").exists():
        (images, vectors), (texts, each) = (parquet_vectors(table, column) for column in ("image", "texts"))
        if vectors is not None and (vectors != 1).any():
            row = int(np.argmax(vectors != 1))
            raise DataError(f"{table}, row {row}: image must be one vector, but holds {vectors[row]}")
    elif whole.exists():
        images, texts, owners = _whole(whole)
    else:
        images, texts = (read_region_header(root / f"{split}_{side}.npy", (side, "numbers")) for side in _SIDES)
        owners = read_region_header(own, ("texts",), "iu") if own.exists() else None
    counts = _counts(owners, images.shape[0], texts.shape[0], f"{root}, {split}") if each is None else each.tolist()
    captions = [[f"text {way} of image {image}" for way in range(count)] for image, count in enumerate(counts)]
    return Listing(names=[str(image) for image in range(len(counts))], captions=captions, features=images, texts=texts)


def _counts(owners: files.StoredArray | None, num_images: int, num_texts: int, where: str) -> list[int]:
    """How many texts each image has."""
    if owners is None:
        return equal_counts(num_texts, num_images, where, "give owners")
    if owners.shape != (num_texts,):
        raise DataError(f"{where}: owners must be {num_texts} whole numbers, one for each text, got {owners.shape[0]}")
    (numbers,) = stored_rows(replace(owners, shape=(1, num_texts)), np.zeros(1, np.int64))
    if (numbers[1:] < numbers[:-1]).any() or numbers[0] < 0 or numbers[-1] >= num_images:
        raise DataError(f"{where}: owners must ascend from 0 to at most {num_images - 1}")
    return [int(count) for count in np.bincount(numbers.astype(np.int64), minlength=num_images)]


def _whole(path: Path) -> tuple[files.StoredArray, files.StoredArray, files.StoredArray | None]:
    """The vectors of images and texts in a safetensors file, and the owners of the texts, if it has them."""
    with files.opened(path) as file, files.reading(f"cannot read {path}"):
        places, _ = files.header_of(file)
    if missing := [side for side in _SIDES if side not in places]:
        raise DataError(f"{path} has no {missing[0]}; it holds {', '.join(places)}")
    images, texts = (checked(places[side], f"{path}: {side}", (side, "numbers")) for side in _SIDES)
    owners = places.get("owners")
    return images, texts, owners and checked(owners, f"{path}: owners", ("texts",), "iu")
