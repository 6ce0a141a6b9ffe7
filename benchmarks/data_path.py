"""What reading images costs: from JPEG files, from packs, as an index grows to a million, and from cached features.

    python benchmarks/data_path.py [--images 128] [--size 224] [--backbone resnet18] [--largest 1000000]
    python benchmarks/data_path.py --images 2048 --backbone resnet152 --backbone-size 224 --device cuda --workers 16

Seconds are those of this process's processor, with one thread, so that other work on the machine counts little. The
pictures are made up, 640 x 480 as in COCO. The baseline reads the same files as a careful user of torchvision would:
`RandomResizedCrop`, a flip, a `DataLoader`. Needs what goal_core needs, no more.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import PIL
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from goal_core.basics.sealed_json import json_bytes
from goal_core.checkpoints import InitialModel
from goal_core.data import BatchSource, Dataset, DecodedImages, ImageConfig, KarpathyConfig, Split, open_dataset
from goal_core.data.dataset import split_of
from goal_core.data.packs import layout, open_packed, plan_pack, write_pack
from goal_core.models import BackboneConfig, GruConfig, ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training import StageConfig, TrainingPlan, UnitPlan
from goal_core.training.trunk import Trunk

BATCH = 64
CAPTIONS = 5
EPOCHS = 6


def make_images(root: Path, images: int) -> None:
    """Write pictures with about the detail of photographs, and their annotations."""
    root.mkdir()
    records = []
    for number in range(images):
        noise = np.random.default_rng(number)
        coarse = Image.fromarray(noise.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), dtype=np.float32)
        pixels = (smooth + noise.normal(0, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{number}.jpg", quality=90)
        split = "val" if number % 8 == 0 else "test" if number % 8 == 1 else "train"
        sentences = [{"raw": f"picture {number} said in way {way}"} for way in range(CAPTIONS)]
        records.append({"filename": f"{number}.jpg", "split": split, "sentences": sentences})
    (root / "dataset_made.json").write_text(json.dumps({"images": records}))


class _Baseline(TorchDataset[Tensor]):
    """The training images, as in a script that uses torchvision."""

    def __init__(self, split: Split, size: int) -> None:
        from torchvision import transforms

        self._paths = [split.reader.label(index) for index in split.caption_image.tolist()]
        parts = [transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
        self._transform = transforms.Compose(parts)

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Tensor:
        with Image.open(self._paths[index]) as image:
            pixels: Tensor = self._transform(image.convert("RGB"))
        return pixels


def per_second(count: int, passes: Iterator[object]) -> float:
    """Images per second of processor time, in the second of two passes over ``count`` images each."""
    next(passes)
    began = time.process_time()
    next(passes)
    return count / (time.process_time() - began)


def training_passes(dataset: Dataset, image: ImageConfig) -> Iterator[int]:
    """Each item is an epoch of training batches."""
    split = dataset.splits["train"]
    source = BatchSource(split, _Tokens(), image, batch_size=BATCH, seed=1)
    for epoch in range(1, 100):
        yield sum(len(batch) for batch in source.batches(epoch))


class _Tokens:
    """A tokenizer that costs nothing: every caption is two ids."""

    def encode(self, caption: str) -> list[int]:
        """Two ids."""
        return [1, 2]

    def __len__(self) -> int:
        return 3

    def to_json(self) -> str:
        """Not stored."""
        raise NotImplementedError


def evaluation_passes(dataset: Dataset, image: ImageConfig) -> Iterator[int]:
    """Each item is a pass over the val split, nothing kept in memory."""
    images = DecodedImages(dataset.splits["val"], image, ram_limit=0)
    while True:
        yield sum(len(chunk) for chunk in images.chunks(BATCH))


def baseline_passes(split: Split, size: int) -> Iterator[int]:
    """Each item is an epoch of the baseline."""
    loader = DataLoader(_Baseline(split, size), batch_size=BATCH, shuffle=True)
    while True:
        yield sum(len(batch) for batch in loader)


def compare_decoding(root: Path, scratch: Path, size: int) -> None:
    """Files against packs, in images per second."""
    plain = ImageConfig(size=size, resize=size * 8 // 7, augment="crop_flip")
    small = replace(plain, shrink=plain.resize)
    first = open_dataset(KarpathyConfig(name="made", root=str(root), image=plain))
    pairs, val = first.splits["train"].num_captions, first.splits["val"].num_images
    base = per_second(pairs, baseline_passes(first.splits["train"], size))
    print(f"DataLoader, RandomResizedCrop({size}): {base:,.0f} images/s of one core")
    for name, image in (("as they are", plain), ("shrink", small), ("shrink, jpeg 90", replace(small, jpeg=90))):
        dataset = open_dataset(KarpathyConfig(name="made", root=str(root), image=image))
        began = time.process_time()
        bytes_packed = write_pack(dataset, plan_pack(dataset, image, scratch), workers=1)
        took = time.process_time() - began
        packed, _ = open_packed(dataset, image, scratch)
        images = sum(split.num_images for split in dataset.splits.values())
        found = [per_second(pairs, training_passes(one, image)) for one in (dataset, packed)]
        print(
            f"images {name:16}: {found[0]:7,.0f} from files, {found[1]:7,.0f} from a pack, "
            f"{found[1] / found[0]:5.1f}x, {found[1] / base:5.1f}x of the DataLoader; "
            f"pack {bytes_packed / images / 1e3:,.0f} kB an image, written at {images / took:,.0f} images/s"
        )
        rates = [per_second(val, evaluation_passes(one, image)) for one in (dataset, packed)]
        print(
            f"    evaluation        : {rates[0]:7,.0f} from files, {rates[1]:7,.0f} from a pack, "
            f"{rates[1] / rates[0]:5.1f}x"
        )


def compare_devices(root: Path, scratch: Path, size: int, device: torch.device, workers: int) -> None:
    """Training batches that arrive on the device, in images per second of the clock."""
    image = ImageConfig(size=size, resize=size * 8 // 7, augment="crop_flip", shrink=size * 8 // 7)
    dataset = open_dataset(KarpathyConfig(name="made", root=str(root), image=image))
    write_pack(dataset, plan_pack(dataset, image, scratch), workers=workers)
    packed, _ = open_packed(dataset, image, scratch)
    as_is = replace(image, decoder="nvjpeg", shrink=0)
    ways = {
        "files, CPU": (dataset, image, False, False),
        "pack, CPU": (packed, image, False, False),
        "pack, device": (packed, image, True, False),
        "pack kept on it": (packed, image, True, True),
    } | ({"files, nvJPEG": (dataset, as_is, True, False)} if device.type == "cuda" else {})
    for name, (data, settings, on_device, keep) in ways.items():
        split = data.splits["train"]
        source = BatchSource(split, _Tokens(), settings, batch_size=BATCH, seed=1, num_workers=workers, device=device,
                             augment_on_device=on_device, keep_on_device=keep)  # fmt: skip
        for epoch in (1, 2):
            began = time.perf_counter()
            for batch in source.batches(epoch):
                assert batch.images is not None
                batch.images.to(device, non_blocking=True)
            if device.type == "cuda":
                torch.cuda.synchronize()
        source.close()
        rate = split.num_captions / (time.perf_counter() - began)
        print(f"batches on {device}, {workers} workers, {name:16}: {rate:9,.0f} images/s")


class _Nothing:
    """A reader of images that are in a pack only."""

    def __init__(self, images: int) -> None:
        self._images = images

    def __len__(self) -> int:
        return self._images

    def read(self, index: int) -> np.ndarray:
        """Never called."""
        raise NotImplementedError

    def label(self, index: int) -> str:
        """Its number."""
        return str(index)

    def file(self, index: int) -> str:
        """None."""
        return ""

    def first(self, num_images: int) -> Self:
        """The first."""
        return type(self)(num_images)


def synthetic(packs: Path, images: int, image: ImageConfig) -> Dataset:
    """A dataset and its pack whose shards are holes in the file system: an index of any size on a small disk."""
    import zlib

    splits = {name: split_of(name, [["a b"]] * count, _Nothing(count)) for name, count in
              (("train", images), ("val", 1), ("test", 1))}  # fmt: skip
    dataset = Dataset(name="made", splits=splits, fingerprint=f"synthetic {images}")
    plan = plan_pack(dataset, image, packs)
    plan.folder.mkdir(parents=True)
    each, files = 3 * image.size**2, {}
    for name, split in splits.items():
        per_shard = max(1, max(layout.SHARD_BYTES, each * split.num_images // layout.FEW_SHARDS) // each)
        rows = np.zeros(split.num_images, layout.ROW)
        numbers = np.arange(split.num_images)
        rows["shard"], rows["offset"], rows["bytes"] = numbers // per_shard, numbers % per_shard * each, each
        rows["height"] = rows["width"] = image.size
        rows["crc"] = zlib.crc32(bytes(each))
        for row in range(len(rows)):
            rows["check"][row] = layout.row_check(rows[row : row + 1])
        rows.tofile(plan.index(name))
        paths = [plan.index(name)]
        for number, start in enumerate(range(0, split.num_images, per_shard)):
            paths.append(plan.shard(name, number))
            with paths[-1].open("wb") as file:
                file.truncate(min(per_shard, split.num_images - start) * each)
        files |= {path.name: path.stat().st_size for path in paths}
    (plan.folder / layout.DESCRIPTION).write_bytes(json_bytes({**plan.description, "files": files}))
    return dataset


def grow_index(scratch: Path, size: int, largest: int) -> None:
    """Opening and a random batch, as the number of images grows."""
    image = ImageConfig(size=size, resize=size, augment="none")
    count = 1000
    while count <= largest:
        dataset = synthetic(scratch / "grown", count, image)
        before, opened = anonymous(), 1e9
        for _ in range(5):
            began = time.process_time()
            packed, _ = open_packed(dataset, image, scratch / "grown")
            opened = min(opened, time.process_time() - began)
        chosen = np.random.default_rng(1).integers(0, count, (12, BATCH))
        stream = DecodedImages(packed.splits["train"], image).stream(list(chosen))
        next(stream), next(stream)
        began = time.process_time()
        batches = sum(1 for _ in stream)
        batch_ms = 1000 * (time.process_time() - began) / batches
        print(
            f"{count:9,} images: opened in {1000 * opened:6.1f} ms, a random batch of {BATCH} in {batch_ms:5.1f} ms, "
            f"{anonymous() - before:5.1f} MB more memory"
        )
        shutil.rmtree(scratch / "grown")
        count *= 10


def anonymous() -> float:
    """Memory of this process that no file backs, MB; pages of mapped files can be taken back at any time."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    raise OSError("this system does not tell the anonymous memory of a process")


def unit_of(root: Path, size: int, backbone: str, augment: str, cache: Path | None = None) -> UnitPlan:
    """A frozen unit of one cell."""
    image = ImageConfig(size=size, resize=size, augment=augment)  # type: ignore[arg-type]
    return UnitPlan(
        trainings=(
            TrainingPlan(key="k", cell_id="c", objective=ObjectiveConfig(pair="con", triplet="con"), init=None),
        ),
        data=KarpathyConfig(name="made", root=str(root), image=image, min_word_count=1),
        model=ModelConfig(
            backbone=BackboneConfig(name=backbone, weights="random"), text=GruConfig(word_dim=16), embed_dim=64
        ),
        seed=1,
        stage=StageConfig(name="frozen", epochs=1, lr=1e-3, batch_size=BATCH),
        cache=cache,
    )


def compare_features(root: Path, scratch: Path, size: int, backbone: str) -> None:
    """An epoch of inputs from features that are computed anew, against one from cached features."""
    seconds = {}
    for augment in ("crop_flip", "none"):
        unit = unit_of(root, size, backbone, augment, scratch / "features")
        dataset = open_dataset(unit.data)
        initial = InitialModel(unit.model, unit.data, dataset)
        train = dataset.splits["train"]
        for what in ("computing", "reading") if augment == "none" else ("nothing",):
            trunk = Trunk(unit, initial, dataset.fingerprint, alive=lambda: None)
            began = time.process_time()
            trunk.prepare(train)
            seconds[what] = time.process_time() - began
        source = BatchSource(train, initial.tokenizer, unit.data.image, batch_size=BATCH, seed=1,
                             with_images=trunk.wants_pixels())  # fmt: skip
        began, epochs = time.process_time(), 1 if augment == "crop_flip" else 20
        for epoch in range(epochs):
            for batch in source.batches(epoch + 1):
                trunk.load(batch)
        seconds[augment] = (time.process_time() - began) / epochs
    print(
        f"{backbone} at {size} px, an epoch of {train.num_captions} pairs: features computed anew "
        f"{seconds['crop_flip']:.2f} s, cached {seconds['none'] * 1000:.1f} ms, "
        f"{seconds['crop_flip'] / seconds['none']:,.0f}x; the first unit computes the cache in "
        f"{seconds['computing']:.2f} s, later ones read it in {seconds['reading'] * 1000:.1f} ms"
    )


def watch_memory(root: Path, scratch: Path, size: int) -> None:
    """Anonymous memory after each epoch from a pack."""
    image = ImageConfig(size=size, resize=size * 8 // 7, augment="crop_flip")
    dataset = open_dataset(KarpathyConfig(name="made", root=str(root), image=image))
    write_pack(dataset, plan_pack(dataset, image, scratch), workers=1)
    epochs = training_passes(open_packed(dataset, image, scratch)[0], image)
    found = []
    for _ in range(EPOCHS):
        next(epochs)
        found.append(anonymous())
    print(f"memory after each of {EPOCHS} epochs from a pack, MB: {', '.join(f'{one:.1f}' for one in found)}")


def cpu_name() -> str:
    """The processor, as Linux calls it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--size", type=int, default=224, help="side of the squares, pixels")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--backbone-size", type=int, default=112)
    parser.add_argument("--largest", type=int, default=1_000_000, help="images of the largest index")
    parser.add_argument("--device", default="", help="also measure batches on this device, such as cuda")
    parser.add_argument("--workers", type=int, default=8, help="processes or threads that decode for it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{os.cpu_count()} cores of {cpu_name()}, load {os.getloadavg()[0]:.1f}, one thread; "
        f"torch {torch.__version__}, Pillow {PIL.__version__}"
    )
    with tempfile.TemporaryDirectory(prefix="goal-sweep-data-") as folder:
        root, scratch = Path(folder) / "images", Path(folder)
        make_images(root, options.images)
        compare_decoding(root, scratch / "packs", options.size)
        if options.device:
            device = torch.device(options.device)
            compare_devices(root, scratch / "packs", options.size, device, options.workers)
        watch_memory(root, scratch / "packs", options.size)
        compare_features(root, scratch, options.backbone_size, options.backbone)
        grow_index(scratch, options.size, options.largest)


if __name__ == "__main__":
    main()
