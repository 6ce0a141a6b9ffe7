"""Write tiny datasets in Karpathy's layout: coloured PNGs and a dataset_*.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COUNTS = {"train": 6, "restval": 2, "val": 3, "test": 3}
_COLOURS = ("red", "green", "blue", "yellow", "grey")


def tiny_annotations(
    counts: dict[str, int] | None = None, *, captions: int = 5, folder: str | None = "pictures"
) -> dict[str, Any]:
    """The annotations of a dataset with ``counts`` images per split, numbered in the order of the splits."""
    images: list[dict[str, Any]] = []
    for split, count in (counts or COUNTS).items():
        for _ in range(count):
            number = len(images)
            raws = [f"A {_COLOURS[number % 5]} picture, number {number} said in way {way}." for way in range(captions)]
            image: dict[str, Any] = {
                "imgid": number,
                "filename": f"{number:04d}.png",
                "split": split,
                "sentences": [{"raw": raw, "tokens": raw.lower().strip(".").split()} for raw in raws],
            }
            if folder is not None:
                image["filepath"] = folder
            images.append(image)
    return {"dataset": "tiny", "images": images}


def write_dataset(
    root: Path,
    content: dict[str, Any] | None = None,
    *,
    place: str = "",
    size: tuple[int, int] = (40, 30),
    name: str = "dataset_tiny.json",
) -> Path:
    """Write annotations and a PNG for each image in them.

    Args:
        root: folder of the dataset, created if missing.
        content: the annotations from :func:`tiny_annotations`, possibly changed.
        place: folder below the root that holds the images' own folders.
        size: width and height of the PNGs.
        name: name of the annotation file.

    Returns:
        The root.
    """
    content = tiny_annotations() if content is None else content
    root.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(content), encoding="utf-8")
    for number, image in enumerate(content["images"]):
        path = root / place / image.get("filepath", "") / image["filename"]
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)
    return root
