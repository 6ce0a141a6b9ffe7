"""Features of a dataset's images, computed once and written as `*_ims.npy`, `*_caps.txt` and `*_ids.txt`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goal_core.basics.atomic import check_space, remove_leftovers, replace_bytes, storage_errors
from goal_core.basics.errors import DataError, DeviceError
from goal_core.basics.sealed_json import json_bytes, key_of, read_json
from goal_core.data import Dataset, DecodedImages, ImageConfig, Split, transform_of
from goal_core.data.formats import DESCRIPTION, REGION_AXES, VECTOR_AXES, FeatureFile, read_region_header, split_files
from goal_core.data.images import NUM_WINDOWS, window_pixels
from goal_core.evaluation.embedding import CHUNK
from goal_core.models import BackboneConfig, ImageBackbone, build_backbone, weights_id

Kind = Literal["grid", "windows", "vectors"]

Progress = Callable[[str, int, int], None]
"""Called with the split's name, the images done and all images of the split."""


def extract_features(
    dataset: Dataset,
    image: ImageConfig,
    backbone: BackboneConfig,
    out: Path,
    *,
    kind: Kind = "grid",
    seed: int = 0,
    device: str = "cpu",
    workers: int = 0,
    progress: Progress = lambda split, done, total: None,
) -> tuple[int, int, int]:
    """Pass every image through a backbone and write its features, captions and ids.

    They are in the layout of `data.format: precomp` (`vectors`) or `data.format: regions` (the other kinds).

    Killed at any moment and called again, it continues where it stopped, and the result is the same. A `*_ims.npy`
    file appears only when it is complete.

    Args:
        dataset: images with captions.
        image: size of the images, which are not augmented.
        backbone: any timm architecture, and its weights.
        out: folder, created if necessary; it must not contain other features.
        kind: `grid`: the cells of the last feature map; `windows`: the pooled vectors of the 14 windows of a pyramid,
            the whole image first; `vectors`: the pooled vector of the whole image.
        seed: draws the weights where they are `random`.
        device: `cpu` or `cuda`.
        workers: threads or processes that decode, 0 for none.
        progress: called after every few images.

    Returns:
        Number of images in all, regions of each image (1 for `vectors`), and features of each region: (N, R, F).

    Raises:
        DataError: the dataset has features already, an image cannot be read, the folder contains other features, or
            the disk is too small.
        WeightsError: the weights cannot be found, or do not fit.
        StorageError: a file cannot be written.
        DeviceError: CUDA was requested but is not available.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("--device cuda was requested, but torch finds no CUDA device")
    for split in dataset.splits.values():
        if split.region_shape is not None:
            raise DataError(f"{dataset.name} has precomputed features already; features are computed from images")
    ids = _ids(dataset)
    net = build_backbone(backbone, image_size=image.size, seed=seed, cells=kind == "grid").to(device)
    shape = _shape(net, image, kind)
    description = {
        "backbone": backbone.name,
        "weights": weights_id(backbone) if backbone.weights != "random" else f"random, seed {seed}",
        "kind": kind,
        "image": {"size": image.size, "resize": image.resize},
        "regions": shape[0],
        "features": shape[1],
        "data_fingerprint": dataset.fingerprint,
    }
    _claim(out, description)
    words = split_files("test")
    todo = {name: split for name, split in dataset.splits.items() if not (out / f"{words[name]}_ims.npy").exists()}
    needed = sum(split.num_images for split in todo.values()) * shape[0] * shape[1] * 4
    check_space(out, needed, ".*_ims.npy.partial")
    for name, split in dataset.splits.items():
        word = words[name]
        captions = [" ".join(caption.split()) for caption in split.captions]
        for end, lines in (("caps", captions), ("ids", ids[name])):
            replace_bytes(out / f"{word}_{end}.txt", "".join(f"{line}\n" for line in lines).encode())
        path = out / f"{word}_ims.npy"
        full = (split.num_images, shape[1]) if kind == "vectors" else (split.num_images, *shape)
        if name in todo:
            file = FeatureFile(path, full, key_of(description), part=CHUNK)
            _write_split(split, net, image, kind, file, workers, progress)
        elif (there := read_region_header(path, VECTOR_AXES if kind == "vectors" else REGION_AXES).shape) != full:
            raise DataError(f"{path} has shape {there}, not {full}; remove it to have it written again")
        progress(name, split.num_images, split.num_images)
    return (sum(split.num_images for split in dataset.splits.values()), *shape)


def _write_split(
    split: Split,
    net: ImageBackbone,
    image: ImageConfig,
    kind: Kind,
    file: FeatureFile,
    workers: int,
    progress: Progress,
) -> None:
    device = next(net.parameters()).device
    with file, torch.inference_mode():
        # Chunks always start at the same images, because a kernel may round differently at another size.
        starts = range(file.num_rows, split.num_images, CHUNK)
        parts = [np.arange(start, min(start + CHUNK, split.num_images), dtype=np.int64) for start in starts]
        load = _windows if kind == "windows" else _whole_images
        for part, chunk in zip(parts, load(split, image, parts, workers), strict=True):
            features = torch.cat([net(pixels.to(device)).float().cpu() for pixels in torch.split(chunk, CHUNK)])
            rows = features if kind == "vectors" else features.reshape(len(part), -1, features.shape[-1])
            file.append(rows.numpy())
            progress(split.name, file.num_rows, split.num_images)


def _whole_images(
    split: Split, image: ImageConfig, parts: Sequence[NDArray[np.int64]], workers: int
) -> Iterator[Tensor]:
    """The whole images of each part, (B, 3, S, S) uint8."""
    with closing(DecodedImages(split, image, num_workers=workers, ram_limit=0)) as images:
        yield from images.stream(parts)


def _windows(split: Split, image: ImageConfig, parts: Sequence[NDArray[np.int64]], workers: int) -> Iterator[Tensor]:
    """The windows of each part's images, image by image, (B * NUM_WINDOWS, 3, S, S) uint8."""

    def windows(index: int) -> Tensor:
        return window_pixels(transform_of(image).prepared(split.load_image(index)), image.size)

    with ThreadPoolExecutor(max(1, workers)) as pool:
        for part in parts:
            yield torch.cat(list(pool.map(windows, part.tolist())))


def _shape(net: ImageBackbone, image: ImageConfig, kind: Kind) -> tuple[int, int]:
    """Number of regions of an image, and of features of a region."""
    device = next(net.parameters()).device
    with torch.inference_mode():
        features = net(torch.zeros(1, 3, image.size, image.size, dtype=torch.uint8, device=device))
    return {"grid": features.shape[1], "windows": NUM_WINDOWS, "vectors": 1}[kind], features.shape[-1]


def _ids(dataset: Dataset) -> dict[str, list[str]]:
    """The id of each image: the files' names where they are unique, otherwise numbers over all splits.

    There is one for each caption where images have different numbers of captions.
    """
    labels = {
        name: [os.path.basename(split.reader.label(index)) for index in range(split.num_images)]
        for name, split in dataset.splits.items()
    }
    everything = [label for names in labels.values() for label in names]
    if len(set(everything)) < len(everything) or any(label != "".join(label.split()) for label in everything):
        numbers = iter(range(len(everything)))
        labels = {name: [str(next(numbers)) for _ in names] for name, names in labels.items()}
    for name, split in dataset.splits.items():
        if len(np.unique(np.bincount(split.caption_image))) > 1:
            labels[name] = [labels[name][image] for image in split.caption_image]
    return labels


def _claim(out: Path, description: dict[str, object]) -> None:
    """Reserve a folder for these features, or check that it is reserved for them already.

    Raises:
        DataError: it contains other features.
        DamagedError: the description of its features cannot be read.
        StorageError: it cannot be written to.
    """
    path = out / DESCRIPTION
    with storage_errors(out, "write to"):
        out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out)
        foreign = sorted(file.name for file in out.glob("*_ims.npy"))
        if foreign and not path.exists():
            raise DataError(f"{out} contains {foreign[0]} but no {DESCRIPTION}; choose another folder")
        if not path.exists():
            replace_bytes(path, json_bytes(description, seal=False))
    stated = read_json(path, sealed=False) or {}
    if stated != description:
        key = next((key for key in description if stated.get(key) != description[key]), DESCRIPTION)
        raise DataError(
            f"{out} contains other features: {key} is {stated.get(key)}, not {description.get(key)}; "
            "choose another folder"
        )
