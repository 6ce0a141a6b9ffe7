"""Features of a dataset's images, computed once and written as `*_ims.npy`, `*_caps.txt` and `*_ids.txt`."""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from goal_sweep.goal_core.basics.atomic import check_space, remove_leftovers, replace_bytes, storage_errors
from goal_sweep.goal_core.basics.errors import DataError, DeviceError, WeightsError
from goal_sweep.goal_core.basics.files import json_bytes, read_json
from goal_sweep.goal_core.data import Dataset, ImageConfig, Split, index_parts
from goal_sweep.goal_core.data.formats.layout import FILE_WORDS
from goal_sweep.goal_core.data.inputs import DecodedImages
from goal_sweep.goal_core.data.packs import Progress
from goal_sweep.goal_core.evaluation.feature_files import DESCRIPTION, write_features
from goal_sweep.goal_core.evaluation.recalls import CHUNK
from goal_sweep.goal_core.models import BackboneConfig, weights_id
from goal_sweep.goal_core.models.backbones import ImageBackbone, build_backbone


def extract_features(
    dataset: Dataset,
    image: ImageConfig,
    backbone: BackboneConfig,
    out: Path,
    *,
    kind: Literal["grid", "vectors"] = "grid",
    seed: int = 0,
    device: str = "cpu",
    workers: int = 0,
    progress: Progress = lambda split, done, total: None,
) -> tuple[int, int, int]:
    """Pass every image through a backbone and write its features, captions and ids.

    They are in the layout of `data.format: precomp` (`vectors`) or `data.format: regions` (`grid`). Killed at any
    moment and called again, it continues with the splits that are not complete.

    Args:
        kind: `grid`: the cells of the last feature map; `vectors`: the pooled vector of the whole image.

    Returns:
        Number of images in all, regions of each image (1 for `vectors`), and features of each region: (N, R, F).
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("--device cuda was requested, but torch finds no CUDA device")
    net = build_backbone(backbone, image_size=image.size, seed=seed, cells=kind == "grid").placed(torch.device(device))
    with torch.inference_mode():
        sizes = net(torch.zeros(1, 3, image.size, image.size, dtype=torch.uint8, device=device)).shape[1:]
    shape = (sizes[0] if kind == "grid" else 1, sizes[-1])
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
    todo = {name: split for name, split in dataset.splits.items() if not (out / f"{FILE_WORDS[name]}_ims.npy").exists()}
    needed = sum(split.num_images for split in dataset.splits.values()) * shape[0] * shape[1] * 4
    check_space(out, needed, "*_ims.npy")
    ids, source = _ids(dataset), f"{backbone.name} with weights {backbone.weights}"
    for name, split in todo.items():
        for end, lines in (("caps", [" ".join(caption.split()) for caption in split.captions]), ("ids", ids[name])):
            replace_bytes(out / f"{FILE_WORDS[name]}_{end}.txt", "".join(f"{line}\n" for line in lines).encode())
        rows = partial(_features, split, net, source, image, workers, progress)
        write_features(out / f"{FILE_WORDS[name]}_ims.npy", (split.num_images, *sizes), rows)
    return (sum(split.num_images for split in dataset.splits.values()), *shape)


def _features(
    split: Split, net: ImageBackbone, source: str, image: ImageConfig, workers: int, progress: Progress
) -> Iterator[NDArray[np.float32]]:
    """The features of all images, chunk by chunk, (B, ..., F); a `WeightsError` where one is not finite."""
    device, done = next(net.parameters()).device, 0
    parts = ((part, ()) for part in index_parts(split.num_images, CHUNK))
    with closing(DecodedImages(split, image, num_workers=workers, ram_limit=0)) as images, torch.inference_mode():
        for pixels in images.stream(parts):
            rows = net(pixels.to(device)).cpu().numpy()
            if not (finite := np.isfinite(rows).reshape(len(rows), -1).all(axis=1)).all():
                label = split.reader.label(done + int(np.argmin(finite)))
                raise WeightsError(f"the features of {label} are not finite, computed by {source}")
            yield rows
            done += len(pixels)
            progress(split.name, done, split.num_images)


def _ids(dataset: Dataset) -> dict[str, list[str]]:
    """The id of each image: the files' names where they are unique, otherwise numbers over all splits.

    There is one for each caption where images have different numbers of captions.
    """
    labels: dict[str, list[str]] = {}
    for name, split in dataset.splits.items():
        labels[name] = [os.path.basename(split.reader.label(index)) for index in range(split.num_images)]
    everything = [label for names in labels.values() for label in names]
    if len(set(everything)) < len(everything) or any(label != "".join(label.split()) for label in everything):
        numbers = iter(range(len(everything)))
        labels = {name: [str(next(numbers)) for _ in names] for name, names in labels.items()}
    for name, split in dataset.splits.items():
        if len(np.unique(np.bincount(split.caption_image))) > 1:
            labels[name] = [labels[name][image] for image in split.caption_image]
    return labels


def _claim(out: Path, description: dict[str, object]) -> None:
    """Reserve a folder for these features, or check that it is reserved for them already."""
    path = out / DESCRIPTION
    with storage_errors(out, "write to"):
        out.mkdir(parents=True, exist_ok=True)
        remove_leftovers(out)
        foreign = sorted(file.name for end in ("ims.npy", "caps.txt", "ids.txt") for file in out.glob(f"*_{end}"))
        if foreign and not path.exists():
            raise DataError(f"{out} contains {foreign[0]} but no {DESCRIPTION}; choose another folder")
        if not path.exists():
            replace_bytes(path, json_bytes(description, seal=False))
    stated = read_json(path, sealed=False) or {}
    if stated != description:
        key = next((key for key in description if stated.get(key) != description[key]), DESCRIPTION)
        says = f"{key} is {stated.get(key)}, not {description.get(key)}; choose another folder"
        raise DataError(f"{out} contains other features: {says}")
