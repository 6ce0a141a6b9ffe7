"""What images cost on their way to the model, from JPEG files and from packs; and what the index of many files costs.

    python -m benchmarks.data_path
    python -m benchmarks.data_path --device cuda --images 400 --workers 8

Without workers seconds are those of this process's processor, with one thread, so that other work counts little. The
photographs are made up, 640 x 480 as in COCO; `benchmarks.units` reads them with torchvision. COCO has 123,287
files (`--files 123287`).
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.program import Report, Row, run, seconds
from benchmarks.units import UNIT, data_of, loader_of, photographs
from goal_sweep.goal_core.data import Dataset, ImageConfig
from goal_sweep.goal_core.data.batches import BatchSource
from goal_sweep.goal_core.data.config import KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.packs import open_packed, plan_pack, write_pack
from goal_sweep.goal_core.data.text import Vocabulary

OPTIONS = {**UNIT, "images": 128, "size": 224, "batch": 64, "files": 12_000}


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure decoding, packs and the index."""
    torch.set_num_threads(1)
    report.row("the index", f"{given.files:,} files of 2 kB", partial(_index, given))
    with photographs(given, 2 * given.batch) as root:
        data, packs = data_of(root, given.size), root / "packs"
        dataset = open_dataset(data)
        words = Vocabulary.build(dataset.vocabulary_captions, 1)
        loader = loader_of(dataset.splits["train"], words, given)
        table = f"training images, squares of {given.size} px, {given.workers} workers, {given.device}"
        usual = partial(_rate, given, len(loader) * given.batch, lambda epoch: (batch[0] for batch in loader))
        base = report.row(table, "torchvision", usual)
        for name, shrink in (("as they are", 0), ("shrunk", data.image.resize)):
            image = replace(data.image, shrink=shrink)
            dataset = open_dataset(replace(data, image=image))
            report.row("packs", name, partial(_pack, dataset, image, packs))
            for source, opened in (("files", dataset), ("pack", open_packed(dataset, image, packs)[0])):
                report.row(table, f"{source}, {name}", partial(_decoded, given, opened, image, words, base))


def _rate(
    given: argparse.Namespace, count: int, one_pass: Callable[[int], Iterable[Tensor | None]]
) -> dict[str, float]:
    """The second of two passes over so many images; the first starts workers."""

    def consume(epoch: int) -> None:
        for images in one_pass(epoch):
            assert images is not None
            images.to(given.device, non_blocking=True)

    consume(1)
    took = seconds(lambda: consume(2), given.device, 1 + given.workers)
    return {"images/s": count / took, f"ms a batch of {given.batch}": 1000 * took * given.batch / count}


def _decoded(given: argparse.Namespace, dataset: Dataset, image: ImageConfig, words: Vocabulary, base: Row) -> Row:
    train = dataset.splits["train"]
    with closing(BatchSource(train, words, image, batch_size=given.batch, seed=1, num_workers=given.workers,
                             device=torch.device(given.device))) as source:  # fmt: skip
        rate = _rate(given, train.num_captions, lambda epoch: (batch.images for batch in source.batches(epoch)))
    return rate | ({"/ torchvision": rate["images/s"] / float(base["images/s"])} if base else {})


def _index(given: argparse.Namespace) -> Row:
    """Seconds of this process's processor: all threads of an opening."""
    with tempfile.TemporaryDirectory() as scratch:
        root, splits = Path(scratch), ("val", "test", "train")
        names, draws = [f"{number}.jpg" for number in range(given.files)], np.random.default_rng(1)
        sentences = [{"raw": f"a few words, of which caption {way} has some of its own"} for way in range(5)]
        images = [
            {"filename": name, "split": splits[min(2, 20 * number // given.files)], "sentences": sentences}
            for number, name in enumerate(names)
        ]
        (root / "dataset_made.json").write_text(json.dumps({"images": images}))
        for name in names:
            Image.fromarray(draws.integers(0, 256, (36, 36, 3), dtype=np.uint8)).save(root / name)
        opened = partial(open_dataset, KarpathyConfig(name="made", root=scratch), root / "indexes")

        def read() -> None:
            for name in names:
                (root / name).read_bytes()

        return {
            "reading the bytes, s": seconds(read),
            "first, s": seconds(opened),
            "with a look at every file, s": seconds(opened),
            "without that look, s": seconds(partial(opened, renew=False)),
        }


def _pack(dataset: Dataset, image: ImageConfig, packs: Path) -> Row:
    plan, written = plan_pack(dataset, image, packs), list[int]()
    took = seconds(lambda: written.append(write_pack(dataset, plan, workers=1)))
    opening = min(seconds(lambda: open_packed(dataset, image, packs)) for _ in range(5))
    images = sum(split.num_images for split in dataset.splits.values())
    return {"kB an image": written[0] / images / 1e3, "written, images/s": images / took, "opened, ms": 1000 * opening}


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
