"""Vectors of images and of texts, from any encoders: `.npy` files, or a safetensors file for each split."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.errors import DataError, MissingDataError
from goal_core.data.config import EmbeddingsConfig
from goal_core.data.dataset import SPLIT_NAMES
from goal_core.data.formats.features import RegionFile, read_region_header
from goal_core.data.formats.layout import Layout, Listing, dataset_folder

_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I32": "<i4", "I64": "<i8"}


def embeddings(config: EmbeddingsConfig) -> Layout:
    """Read the headers of the vectors' files, and which text belongs to which image."""
    root = dataset_folder(config.root)
    parts = [f"{part}.npy" for part in ("images", "texts", "owners")]
    return Layout(
        root=root,
        files=[
            *(root / f"{split}_{part}" for split in SPLIT_NAMES for part in parts),
            *(root / f"{split}.safetensors" for split in SPLIT_NAMES),
        ],
        splits={split: partial(_split, root, split) for split in SPLIT_NAMES},
    )


def _split(root: Path, split: str) -> Listing:
    whole, own = root / f"{split}.safetensors", root / f"{split}_owners.npy"
    if whole.exists():
        found = _tensors(whole)
        images, texts = (_vectors(found, part, whole) for part in ("images", "texts"))
        owners = _numbers(found["owners"]) if "owners" in found else None
    else:
        images, texts = (
            read_region_header(root / f"{split}_{part}.npy", (part, "numbers")) for part in ("images", "texts")
        )
        owners = np.load(own) if own.exists() else None
    counts = _counts(owners, images.shape[0], texts.shape[0], f"{root}, {split}")
    captions = [[f"text {way} of image {image}" for way in range(count)] for image, count in enumerate(counts)]
    return Listing(names=[str(image) for image in range(len(counts))], captions=captions, features=images, texts=texts)


def _counts(owners: NDArray[np.integer] | None, num_images: int, num_texts: int, where: str) -> list[int]:
    """How many texts each image has."""
    if owners is None:
        each, rest = divmod(num_texts, num_images)
        if rest or not each:
            raise DataError(f"{where}: {num_texts} texts are not a multiple of {num_images} images; give owners")
        return [each] * num_images
    if owners.shape != (num_texts,) or owners.dtype.kind not in "iu":
        raise DataError(f"{where}: owners must be {num_texts} whole numbers, got {owners.dtype} {owners.shape}")
    if (np.diff(owners) < 0).any() or owners[0] < 0 or owners[-1] >= num_images:
        raise DataError(f"{where}: owners must ascend from 0 to at most {num_images - 1}")
    return [int(count) for count in np.bincount(owners, minlength=num_images)]


def _tensors(path: Path) -> dict[str, RegionFile]:
    """The tensors of a safetensors file, as arrays in it."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 10**7)))
    except FileNotFoundError:
        raise MissingDataError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a safetensors file: {error}") from error
    return {
        name: RegionFile(
            path=str(path),
            shape=tuple(one["shape"]),
            dtype=_DTYPES[one["dtype"]],
            begin=8 + length + one["data_offsets"][0],
        )
        for name, one in header.items()
        if name != "__metadata__" and one["dtype"] in _DTYPES
    }


def _vectors(found: dict[str, RegionFile], name: str, path: Path) -> RegionFile:
    file = found.get(name)
    if file is None or len(file.shape) != 2 or min(file.shape) < 1 or np.dtype(file.dtype).kind != "f":
        have = ", ".join(f"{name} {one.shape} {one.dtype}" for name, one in found.items()) or "nothing"
        raise DataError(f"{path} must hold {name}, vectors of floating point numbers; it holds {have}")
    return file


def _numbers(file: RegionFile) -> NDArray[np.integer]:
    with open(file.path, "rb") as stored:
        stored.seek(file.begin)
        return np.fromfile(stored, file.dtype, int(np.prod(file.shape))).reshape(file.shape)
