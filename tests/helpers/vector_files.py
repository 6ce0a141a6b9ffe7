"""Write tiny datasets of precomputed vectors, in VSE++'s `*_precomp` layout."""

from pathlib import Path

import numpy as np

COUNTS = {"train": 6, "dev": 3, "test": 3}
WIDTH = 8


def vectors(word: str) -> np.ndarray:
    """The content of ``{word}_ims.npy``, (N, F) float32."""
    return np.random.default_rng(len(word)).standard_normal((COUNTS[word], WIDTH)).astype(np.float32)


def write_vectors(root: Path, *, captions: int = 5, repeat: bool = False) -> Path:
    """Write `*_ims.npy`, with ``repeat`` each image's row once for each of its captions, and `*_caps.txt`."""
    root.mkdir(parents=True, exist_ok=True)
    for word, count in COUNTS.items():
        rows = vectors(word)
        np.save(root / f"{word}_ims.npy", rows.repeat(captions, axis=0) if repeat else rows)
        lines = [f"A picture of {word} {image} said in way {way}." for image in range(count) for way in range(captions)]
        (root / f"{word}_caps.txt").write_text("".join(f"{line}\n" for line in lines))
    return root
