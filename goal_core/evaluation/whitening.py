"""Whitening of precomputed vectors: fewer, uncorrelated numbers of equal variance, which make small files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from goal_core.basics.atomic import replace_bytes, replace_with, storage_errors
from goal_core.basics.errors import ConfigError, DataError
from goal_core.basics.sealed_json import json_bytes, read_json
from goal_core.data.formats import DESCRIPTION, VECTOR_AXES, read_region_header, split_files


def whitening(train_NF: NDArray[np.floating], dims: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean and the projection that whiten vectors by their principal components.

    Args:
        train_NF: vectors, (N, F), more than ``dims`` of them.
        dims: components to keep, at most F.

    Returns:
        The mean (F,), and the projection (F, dims), float64: ``(vectors - mean) @ projection`` has unit variance in
        each dimension, the components of greatest variance first. The largest weight of each is positive, so that the
        result does not depend on the library's choice of sign.

    Raises:
        ConfigError: there are too few vectors or features for ``dims``.
    """
    vectors = train_NF.astype(np.float64)
    if not 0 < dims < min(len(vectors), vectors.shape[1] + 1):
        raise ConfigError(
            f"dims must be at least 1, at most the {vectors.shape[1]} features and below the {len(vectors)} training "
            f"images, got {dims}"
        )
    mean = vectors.mean(axis=0)
    values, directions = np.linalg.eigh(np.cov(vectors, rowvar=False))
    top = np.argsort(values)[::-1][:dims]
    if values[top[-1]] <= values[top[0]] * np.finfo(np.float64).eps * len(mean):
        raise ConfigError(f"the training vectors vary in fewer than {dims} dimensions; keep fewer")
    directions = directions[:, top]
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(dims)]
    return mean, directions * np.sign(largest) / np.sqrt(values[top])


def whiten_features(source: Path, out: Path, *, dims: int, half: bool = False) -> dict[str, tuple[int, int]]:
    """Whiten the vectors of a folder, as statistics of its training split say, and write them to another.

    The captions and ids come along, compressed (`.txt.gz`). `features.json` says what was done.

    Args:
        source: written by ``goal-sweep data features --kind vectors``.
        out: folder, created if necessary; existing features in it are replaced.
        dims: numbers to keep of each vector.
        half: write float16 instead of float32.

    Returns:
        Images and numbers of each, by the name of the split's files.

    Raises:
        ConfigError: ``dims`` does not fit.
        DataError: the folder does not contain such vectors, or ``out`` is the same folder.
        StorageError: a file cannot be written.
    """
    if source.resolve() == out.resolve():
        raise DataError(f"{out} contains the vectors to whiten; choose another folder to write to")
    described = read_json(source / DESCRIPTION, sealed=False)
    if described is None:
        raise DataError(f"{source} has no {DESCRIPTION}; write it with: goal-sweep data features SWEEP --kind vectors")
    words = list(split_files("test").values())
    vectors = {word: read_region_header(source / f"{word}_ims.npy", VECTOR_AXES).mapped() for word in words}
    mean, projection = whitening(vectors["train"], dims)
    with storage_errors(out, "write to"):
        out.mkdir(parents=True, exist_ok=True)
    for word, rows in vectors.items():
        white = ((rows - mean) @ projection).astype(np.float16 if half else np.float32)
        replace_with(out / f"{word}_ims.npy", lambda path, white=white: _save(path, white))  # type: ignore[misc]
        for kind in ("caps", "ids"):
            text = (source / f"{word}_{kind}.txt").read_bytes()
            # Without a time of day in it, equal text gives equal bytes.
            replace_bytes(out / f"{word}_{kind}.txt.gz", gzip.compress(text, mtime=0))
    how = {"dims": dims, "statistics": "train", "dtype": "float16" if half else "float32"}
    replace_bytes(out / DESCRIPTION, json_bytes({**described, "whitened": how}, seal=False))
    return {word: (len(rows), dims) for word, rows in vectors.items()}


def _save(path: Path, rows: NDArray[np.floating]) -> None:
    with path.open("wb") as file:  # np.save adds an ending to a path
        np.save(file, rows)
