"""Write tiny datasets of precomputed regions, and of raw images in VSE-infinity's layout."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

Counts = Mapping[str, int]
COUNTS = {"train": 6, "dev": 3, "test": 3}
SHAPE = (4, 8)


def write_regions(
    root: Path, *, ids_per: str = "image", captions: int = 5, shape: tuple[int, int] = SHAPE, counts: Counts = COUNTS
) -> Path:
    """Write `*_ims.npy`, `*_caps.txt` and `*_ids.txt`. Image n, counted over all splits, has the id 100 + n.

    ``ids_per`` is `image` or `caption`; ``shape`` counts the regions of an image, and the features of a region.
    """
    root.mkdir(parents=True, exist_ok=True)
    number = 0
    for word, count in counts.items():
        names = range(number, number + count)
        number += count
        np.save(root / f"{word}_ims.npy", regions(word, shape, counts))
        lines = [f"A picture of thing {name} said in way {way}." for name in names for way in range(captions)]
        (root / f"{word}_caps.txt").write_text("\n".join(lines) + "\n")
        repeat = captions if ids_per == "caption" else 1
        (root / f"{word}_ids.txt").write_text("".join(f"{100 + name}\n" * repeat for name in names))
    return root


def regions(word: str, shape: tuple[int, int] = SHAPE, counts: Counts = COUNTS) -> np.ndarray:
    """The content of ``{word}_ims.npy``, (N, R, F) float32."""
    return np.random.default_rng(len(word)).standard_normal((counts[word], *shape)).astype(np.float32)


def write_id_mapped(root: Path, *, ids_per: str = "caption") -> Path:
    """Write `id_mapping.json`, PNGs below `images/`, and the text files below `precomp/`."""
    write_regions(root / "precomp", ids_per=ids_per)
    mapping = {str(100 + number): f"train2014/{number:04d}.png" for number in range(sum(COUNTS.values()))}
    (root / "id_mapping.json").write_text(json.dumps(mapping))
    for number, place in enumerate(mapping.values()):
        path = root / "images" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12, 16, 3), number, dtype=np.uint8)).save(path)
    return root
