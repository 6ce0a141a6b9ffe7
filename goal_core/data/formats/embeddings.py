"""Vectors of images and of texts, from any encoders: `.npy` files, or a safetensors or Parquet file for each split."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import DamagedError
from goal_core.basics.errors import DataError
from goal_core.data.columns import StoredArray, header_of
from goal_core.data.config import EmbeddingsConfig
from goal_core.data.dataset import SPLIT_NAMES
from goal_core.data.formats.features import parquet_vectors, read_region_header
from goal_core.data.formats.layout import Layout, Listing, dataset_folder, equal_counts, stamped


def embeddings(config: EmbeddingsConfig) -> Layout:
    """Read the headers of the vectors' files, and which text belongs to which image."""
    root = dataset_folder(config.root)
    ends = ("_images.npy", "_texts.npy", "_owners.npy", ".safetensors", ".parquet")
    return Layout(
        root=root,
        files=stamped(root / f"{split}{end}" for split in SPLIT_NAMES for end in ends),
        splits={split: partial(_split, root, split) for split in SPLIT_NAMES},
    )


def _split(root: Path, split: str) -> Listing:
    whole, own = root / f"{split}.safetensors", root / f"{split}_owners.npy"
    owners: NDArray[np.integer] | None
    if (table := root / f"{split}.parquet").exists():
        (images, _), (texts, each) = (parquet_vectors(table, column) for column in ("image", "texts"))
        owners = None if each is None else np.repeat(np.arange(len(each)), each)
    elif whole.exists():
        images, texts, owners = _whole(whole)
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
        message = f"{where}: {num_texts} texts are not a multiple of {num_images} images; give owners"
        return equal_counts(num_texts, num_images, message)
    if owners.shape != (num_texts,) or owners.dtype.kind not in "iu":
        raise DataError(f"{where}: owners must be {num_texts} whole numbers, got {owners.dtype} {owners.shape}")
    if (np.diff(owners) < 0).any() or owners[0] < 0 or owners[-1] >= num_images:
        raise DataError(f"{where}: owners must ascend from 0 to at most {num_images - 1}")
    return [int(count) for count in np.bincount(owners, minlength=num_images)]


def _whole(path: Path) -> tuple[StoredArray, StoredArray, NDArray[np.integer] | None]:
    """The vectors of images and texts in a safetensors file, and the owners of the texts, if it has them."""
    try:
        places, _ = header_of(path)
    except (OSError, DamagedError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for name in ("images", "texts"):
        one = places.get(name)
        if one is None or len(one.shape) != 2 or min(one.shape) < 1 or np.dtype(one.dtype).kind != "f":
            have = ", ".join(f"{name} {one.shape} {one.dtype}" for name, one in places.items()) or "nothing"
            raise DataError(f"{path} must hold {name}, vectors of floating point numbers; it holds {have}")
    owners = None
    if own := places.get("owners"):
        owners = np.fromfile(path, own.dtype, int(np.prod(own.shape)), offset=own.begin).reshape(own.shape)
    return places["images"], places["texts"], owners
