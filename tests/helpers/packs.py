"""A small dataset with and without a pack, and what a training sees of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goal_sweep.goal_core.data import Dataset, ImageConfig
from goal_sweep.goal_core.data.batches import BatchSource
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import DecodedImages
from goal_sweep.goal_core.data.packs import open_packed, plan_pack, write_pack
from goal_sweep.goal_core.data.text import Vocabulary

SMALL = 2
"""Images of a small shard."""
IMAGES = {
    "none": ImageConfig(size=16, resize=20, augment="none"),
    "crop_flip": ImageConfig(size=16, resize=20, augment="crop_flip"),
    "vse_infty": ImageConfig(size=16, resize=16, augment="vse_infty"),
    "xvlm": ImageConfig(size=16, resize=16, augment="xvlm"),
    "shrunk": ImageConfig(size=16, resize=20, augment="crop_flip", shrink=20),
    "less shrunk": ImageConfig(size=16, resize=20, augment="crop_flip", shrink=24),
}
CROPS = IMAGES["crop_flip"]


class KilledError(BaseException):
    """Stands for a kill."""


def opened(root: Path, image: ImageConfig) -> Dataset:
    return open_dataset(KarpathyConfig(name="tiny", root=str(root), image=image, min_word_count=1))


def packed(root: Path, image: ImageConfig, packs: Path, **options: Any) -> Dataset:
    dataset = opened(root, image)
    write_pack(dataset, plan_pack(dataset, image, packs), per_shard=SMALL, **options)
    with_pack, where = open_packed(dataset, image, packs)
    assert where.startswith("pack ")
    return with_pack


def seen(dataset: Dataset, image: ImageConfig, workers: int = 0) -> list[Tensor]:
    """What training sees of two epochs, and evaluation of each split."""
    train = dataset.splits["train"]
    vocabulary = Vocabulary.build(train.captions, 1)
    source = BatchSource(train, vocabulary, image, batch_size=6, seed=3, num_workers=workers)
    pixels = [batch.images for epoch in (1, 2) for batch in source.batches(epoch)]
    source.close()
    for split in dataset.splits.values():
        pixels += list(DecodedImages(split, image, num_workers=workers).chunks(4))
    return [one for one in pixels if one is not None]


def same(ones: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(ones) == len(others) and all(map(torch.equal, ones, others))
