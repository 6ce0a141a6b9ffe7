"""A split whose reader records which images were read."""

import numpy as np

from goal_sweep.goal_core.data import Split


class CountingReader:
    """Reads random images, and records which were read."""

    stamp = ""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def read(self, index: int) -> np.ndarray:
        self.reads.append(index)
        return np.random.default_rng(index).integers(0, 256, (24, 30, 3), dtype=np.uint8)

    def label(self, index: int) -> str:
        return f"picture {index}"


def counted(num_images: int = 11, captions: int = 3) -> tuple[Split, CountingReader]:
    reader = CountingReader()
    texts = [f"picture {'very ' * (i % 4)}{i} {way}" for i in range(num_images) for way in range(captions)]
    owners = np.arange(num_images).repeat(captions)
    return Split(name="train", captions=texts, caption_image=owners, reader=reader), reader
