"""What images cost on their way to the model: from JPEG files, from packs, from cached features; and what hashes cost.

    python -m benchmarks.data_path --images 128 --size 224 --backbone resnet18 --embed-dim 1024
    python -m benchmarks.data_path --device cuda --images 400 --size 224 --backbone resnet152 --workers 8

Without workers seconds are those of this process's processor, with one thread, so that other work counts little. The
photographs are made up, 640 x 480 as in COCO; `benchmarks.usual` reads them with torchvision.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.program import MIB, Report, Row, run, seconds
from benchmarks.units import UNIT, data_of, photographs, unit_of
from benchmarks.usual import loader_of
from goal_core.checkpoints import InitialModel, write_checkpoint
from goal_core.data import BatchSource, Dataset, ImageConfig, Vocabulary, open_dataset, transform_of
from goal_core.data.formats.image_files import FileReader
from goal_core.data.images import decode_bytes
from goal_core.data.packs import open_packed, plan_pack, write_pack
from goal_core.training.trunk import Trunk

OPTIONS = {**UNIT, "images": 128, "size": 224, "batch": 64, "embed_dim": 1024}
EPOCH_S = 4425 * 0.005
"""COCO's steps in batches of 128, at 5 ms each: a fast epoch, in which a checksum shows."""


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure decoding, packs, hashes of images, cached features and checksums."""
    torch.set_num_threads(1)
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
        report.row("images compared with the index", "SHA-256", partial(_hashing, dataset, data.image))
        report.row("features of a frozen backbone", given.backbone, partial(_features, given, root))
        report.row("checksums of a VSE++ cell", f"D {given.embed_dim}", partial(_checksums, given, root))


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


def _pack(dataset: Dataset, image: ImageConfig, packs: Path) -> Row:
    plan, written = plan_pack(dataset, image, packs), list[int]()
    took = seconds(lambda: written.append(write_pack(dataset, plan, workers=1)))
    opening = min(seconds(lambda: open_packed(dataset, image, packs)) for _ in range(5))
    images = sum(split.num_images for split in dataset.splits.values())
    return {"kB an image": written[0] / images / 1e3, "written, images/s": images / took, "opened, ms": 1000 * opening}


def _hashing(dataset: Dataset, image: ImageConfig) -> Row:
    """Hashing images as they are read, beside decoding and cropping them."""
    split, transform = dataset.splits["train"], transform_of(image)
    reader = split.reader
    assert isinstance(reader, FileReader)
    contents = [reader.content(index) for index in range(len(reader))]

    def decode() -> None:
        for seed, content in enumerate(contents):
            transform.for_training(transform.prepared(decode_bytes(content, "an image")), seed)

    hashed = min(seconds(lambda: [sha256(content).digest() for content in contents]) for _ in range(5))
    decoded = min(seconds(decode) for _ in range(3))
    size = sum(map(len, contents))
    return {"kB an image": size / len(contents) / 1e3, "hash, ms": 1000 * hashed / len(contents),
            "decode, ms": 1000 * decoded / len(contents), "% of decoding": 100 * hashed / decoded}  # fmt: skip


def _features(given: argparse.Namespace, root: Path) -> Row:
    """An epoch's inputs from a frozen backbone that runs for each, and from features that it has computed once."""
    took = {}
    for augment, inputs in (("crop_flip", "anew"), ("none", "kept")):
        unit = unit_of(given, data_of(root, given.size, augment), cache=root / "features")  # type: ignore[arg-type]
        dataset = open_dataset(unit.data)
        initial, train = InitialModel(unit.model, unit.data, dataset), dataset.splits["train"]
        for what in ("computed", "read"):  # the second trunk finds the features of the first
            trunk = Trunk(unit, initial, dataset.fingerprint, alive=lambda: None)
            took[what] = seconds(partial(trunk.prepare, train), given.device, given.threads)
        with closing(BatchSource(train, initial.tokenizer, unit.data.image, batch_size=given.batch, seed=1,
                                 with_images=trunk.wants_pixels(), num_workers=given.workers)) as source:  # fmt: skip
            epoch = partial(lambda source, trunk: [trunk.load(batch) for batch in source.batches(1)], source, trunk)
            took[inputs] = seconds(epoch, given.device, given.threads)
    return {f"{what}, s": value for what, value in took.items()} | {"anew / kept": took["anew"] / took["kept"]}


def _checksums(given: argparse.Namespace, root: Path) -> Row:
    """Saving what a cell saves after an epoch, its state and its best weights, with and without checksums."""
    unit = unit_of(given, data_of(root, given.size))
    initial = InitialModel(unit.model, unit.data, open_dataset(unit.data))
    weights = initial.heads(initial.backbone(1), 1).state_dict()
    tensors = {f"{copy}.{name}": value.clone() for copy in range(4) for name, value in weights.items()}
    path = root / "state.safetensors"
    saves = (lambda: write_checkpoint(path, tensors, {}), lambda: save_file(tensors, path))
    checked, plain = (min(seconds(save) for _ in range(5)) for save in saves)
    size, sums = path.stat().st_size, checked - plain
    return {"MiB an epoch": size / MIB, "checksums, ms": 1000 * sums, "GB/s": size / 1e9 / sums,
            "% of an epoch": 100 * sums / EPOCH_S}  # fmt: skip


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
