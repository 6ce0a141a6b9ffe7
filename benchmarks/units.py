"""What benchmarks train on made-up photographs: units, and a VSE++ cell as a careful user of the usual tools trains it.

The usual tools are torch's DataLoader, torchvision's transforms, a timm backbone (in evaluation mode, without gradients
unless it is fine-tuned), a GRU on packed captions, the hinge of hardest negatives by autograd, clipping and Adam. Of
goal_core that cell takes the names of the images and the captions' token ids.
"""

import argparse
import gc
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Literal
from unittest import mock

import numpy as np
import timm
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as Samples
from torchvision.transforms import v2

from benchmarks.program import MIB, clock_of, wait_for
from goal_sweep.goal_core.basics.devices import set_arithmetic
from goal_sweep.goal_core.data import Dataset, Split
from goal_sweep.goal_core.data.config import ImageConfig, KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.inputs import EncodedCaptions
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig
from goal_sweep.goal_core.objectives import ObjectiveConfig, list_objectives
from goal_sweep.goal_core.training import Callback, FolderFiles, StageConfig, TrainingPlan, UnitPlan, train
from goal_sweep.goal_core.training.cells.roster import EpochBatches
from goal_sweep.goal_core.training.train import train_unit

UNIT: Mapping[str, Any] = {
    "data": "", "images": 64, "backbone": "test_resnet", "size": 64, "batch": 32, "embed_dim": 64, "word_dim": 300,
    "threads": 1, "workers": 0, "warm": 2, "steps": 10,
}  # fmt: skip
"""Options of a benchmark that trains. `data`: folder of the photographs, made where there are none."""
PROFILED = 3
"""Steps after those that are timed, to see how long a GPU works in one."""
CAPTIONS, WORDS, VOCABULARY = 5, 12, 12_000
"""Of an image; of a caption, COCO's mean; and of all captions, about COCO's."""


@contextmanager
def photographs(given: argparse.Namespace, pairs: int = 0) -> Iterator[Path]:
    """A folder of ``given.images`` made-up photographs, or more for so many training pairs, in Karpathy's layout.

    They are 640 x 480, have about the detail of photographs, and five captions each.
    """
    held_out = max(8, given.images // 50)
    images = max(given.images, -(-pairs // CAPTIONS) + 2 * held_out)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(given.data or scratch)
        root.mkdir(exist_ok=True)

        def make(number: int) -> dict[str, object]:
            noise = np.random.default_rng(number)
            coarse = Image.fromarray(noise.integers(0, 256, (24, 32, 3), dtype=np.uint8))
            smooth = np.asarray(coarse.resize((640, 480), Image.Resampling.BICUBIC), dtype=np.float32)
            pixels = (smooth + 9 * noise.standard_normal(smooth.shape, dtype=np.float32)).clip(0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(root / f"{number}.jpg", quality=90)
            drawn = noise.integers(0, VOCABULARY, (CAPTIONS, WORDS)).tolist()
            sentences = [{"raw": " ".join(f"word{word}" for word in caption)} for caption in drawn]
            split = ("val", "test", "train")[min(2, number // held_out)]
            return {"filename": f"{number}.jpg", "split": split, "sentences": sentences}

        if not (listed := root / "dataset_made.json").exists():
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                listed.write_text(json.dumps({"images": list(threads.map(make, range(images)))}))
        yield root


def data_of(root: Path, size: int, augment: Literal["crop_flip", "none"] = "crop_flip") -> KarpathyConfig:
    """The settings of the photographs. Without augmentation a frozen backbone sees each image once."""
    image = ImageConfig(size=size, resize=size * 8 // 7, augment=augment)
    return KarpathyConfig(name="made", root=str(root), image=image, min_word_count=1)


def unit_of(
    given: argparse.Namespace, data: KarpathyConfig, *, stage: Literal["frozen", "finetune"] = "frozen", cells: int = 1,
    stage_settings: Mapping[str, Any] | None = None, **settings: Any,
) -> UnitPlan:  # fmt: skip
    """A unit of the model and batch in ``given``, whose cells have the 15 objectives in turn."""
    model = ModelConfig(
        embed_dim=given.embed_dim, text=TextConfig(word_dim=given.word_dim),
        backbone=BackboneConfig(name=given.backbone, weights="random"),
    )  # fmt: skip
    grid = [ObjectiveConfig(pair=named.pair, triplet=named.triplet) for named in list_objectives()]
    plans = (
        TrainingPlan(key=f"{cell}", cell_id=f"{cell}", objective=grid[cell % 15], init=None) for cell in range(cells)
    )
    own: dict[str, Any] = {"lr": 1e-5, "drop_last": True, "collapse_patience": 0, **(stage_settings or {})}
    config = StageConfig(name=stage, epochs=1, batch_size=given.batch, **own)
    settings = {"threads": given.threads, "loader_workers": given.workers, "device": given.device, **settings}
    return UnitPlan(trainings=tuple(plans), data=data, model=model, seed=1, stage=config, **settings)


class _Enough(BaseException):
    """Ends a training after a step, as a kill would."""


class _Nowhere(FolderFiles):
    """Files that take nothing. Where a cell fails all end with its error: the others would be taken for all."""

    def log(self, line: str) -> None:
        if line.startswith("failed ("):
            raise RuntimeError(line)

    def save_with(self, name: str, write: Callable[[Path], None]) -> None:
        pass


class _Clock(Callback):
    """Times the steps of a unit after those that warm up, profiles some on a GPU, and ends the training."""

    def __init__(self, unit: UnitPlan, warm: int, steps: int) -> None:
        self._device, self._cells = unit.device, len(unit.trainings)
        self._warm, self._end = warm, warm + steps
        self._profiler = None if unit.device == "cpu" else profile(activities=[ProfilerActivity.CUDA])
        self._now = clock_of(unit.device, unit.threads + unit.loader_workers)
        self._done, self._began = 0, (0.0, 0.0, 0.0)
        self._batches: EpochBatches | None = None
        self.row: dict[str, float] = {}

    def watched(self, *arguments: Any) -> EpochBatches:
        """The batches of the epoch; they note how long they are waited for."""
        self._batches = EpochBatches(*arguments)
        return self._batches

    def step(self) -> None:
        assert self._batches is not None
        self._done += 1
        if self._done not in (self._warm, self._end, self._end + PROFILED):
            return
        wait_for(self._device)
        stamp = self._now(), perf_counter(), self._batches.waited
        if self._done == self._warm:
            self._began = stamp
            if self._profiler is not None:
                torch.cuda.reset_peak_memory_stats()
        elif self._done == self._end:
            took, passed, waited = (now - then for now, then in zip(stamp, self._began, strict=True))
            ms = 1000 * took / (self._end - self._warm)
            self.row = {"ms a step": ms, "cell steps/s": 1000 * self._cells / ms, "data wait %": 100 * waited / passed}
            if self._profiler is None:
                raise _Enough
            self.row["MiB"] = torch.cuda.max_memory_allocated() / MIB
            self.row["MiB reserved"] = torch.cuda.max_memory_reserved() / MIB
            self._profiler.start()
        else:
            assert self._profiler is not None
            self._profiler.stop()
            kernels = [event for event in self._profiler.key_averages() if event.device_type.name == "CUDA"]
            worked_ms = sum(event.self_device_time_total for event in kernels) / 1e3 / PROFILED
            self.row["GPU busy %"] = 100 * worked_ms / self.row["ms a step"]
            raise _Enough


def timed(given: argparse.Namespace, unit: UnitPlan, dataset: Dataset) -> dict[str, float]:
    """Train a unit for `warm` steps (at least 1) and `steps` that are timed, within an epoch, and keep nothing.

    Returns:
        Time and share of data wait of the steps; on a GPU also their peak memory, and the share of the time in which it
        worked: the time of the kernels of a profiled step, divided by that of a step without the profiler.
    """
    if (needed := given.warm + given.steps + PROFILED) > dataset.splits["train"].num_captions // given.batch:
        raise ValueError(f"the data are too small for {needed} steps of {given.batch} pairs")
    if unit.device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
    clock = _Clock(unit, given.warm, given.steps)
    watched = mock.patch.object(train, "EpochBatches", clock.watched)
    with tempfile.TemporaryDirectory() as scratch, watched:
        files = {plan.key: _Nowhere(Path(scratch, plan.key)) for plan in unit.trainings}
        try:
            train_unit(unit, files, clock, dataset)
        except _Enough:
            return clock.row
    raise RuntimeError("the training ended before these steps")


class Pairs(Samples[tuple[Tensor, Tensor]]):
    """Image-caption pairs: pixels (3, S, S) float, and token ids (L,)."""

    def __init__(self, split: Split, words: Vocabulary, size: int) -> None:
        self._paths = [split.reader.label(index) for index in split.caption_image.tolist()]
        self._captions = EncodedCaptions.of(split.captions, words)
        normal = v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        drawn = [v2.ToImage(), v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
        self._transform = v2.Compose([*drawn, v2.ToDtype(torch.float32, scale=True), normal])

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        with Image.open(self._paths[index]) as image:
            pixels = self._transform(image.convert("RGB"))
        return pixels, self._captions.batch(np.array([index]))[0][0]


def together(samples: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """A batch: images, padded token ids, and lengths."""
    images, tokens = map(list, zip(*samples, strict=True))
    return torch.stack(images), pad_sequence(tokens, batch_first=True), torch.tensor([len(ids) for ids in tokens])


def loader_of(split: Split, words: Vocabulary, given: argparse.Namespace) -> DataLoader[tuple[Tensor, Tensor]]:
    """Shuffled training batches."""
    return DataLoader(
        Pairs(split, words, given.size), batch_size=given.batch, shuffle=True, drop_last=True, collate_fn=together,
        num_workers=given.workers, pin_memory=given.device != "cpu", persistent_workers=given.workers > 0,
    )  # fmt: skip


class Model(nn.Module):
    """Images and captions to unit vectors (B, D)."""

    def __init__(self, given: argparse.Namespace, num_words: int, finetune: bool) -> None:
        super().__init__()
        self.backbone, self._finetune = timm.create_model(given.backbone, num_classes=0).eval(), finetune
        self.image = nn.Linear(self.backbone.num_features, given.embed_dim)
        self.words = nn.Embedding(num_words, given.word_dim)
        self.gru = nn.GRU(given.word_dim, given.embed_dim, batch_first=True)

    def forward(self, images: Tensor, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors of a batch."""
        with nullcontext() if self._finetune else torch.no_grad():
            features = self.backbone(images)
        packed = pack_padded_sequence(self.words(tokens), lengths, batch_first=True, enforce_sorted=False)
        return normalize(self.image(features)), normalize(self.gru(packed)[1][0])


def hinge(images: Tensor, texts: Tensor, margin: float = 0.2) -> Tensor:
    """VSE++'s loss: the hardest negative of each image and of each caption."""
    scores = images @ texts.t()
    own = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    costs = [(margin + scores - scores.diagonal().unsqueeze(dim)).clamp(min=0).masked_fill(own, 0) for dim in (1, 0)]
    return costs[0].amax(1).sum() + costs[1].amax(0).sum()


def usual_steps(given: argparse.Namespace, root: Path, precision: str, finetune: bool) -> dict[str, float]:
    """Train a cell on photographs for some steps, after some that warm up."""
    torch.manual_seed(1)
    torch.set_num_threads(given.threads)
    set_arithmetic(precision)
    clock, times, count = clock_of(given.device, given.threads + given.workers), [], given.warm + given.steps
    dataset = open_dataset(data_of(root, given.size))
    words = Vocabulary.build(dataset.vocabulary_captions, 1)
    model = Model(given, len(words), finetune).to(given.device)
    trained = [value for name, value in model.named_parameters() if finetune or "backbone" not in name]
    optimizer = torch.optim.Adam(trained, lr=1e-5, fused=True)
    half = torch.autocast(given.device, torch.bfloat16) if precision == "bf16" else nullcontext()
    for images, tokens, lengths in islice(loader_of(dataset.splits["train"], words, given), count):
        optimizer.zero_grad()
        with half:
            embedded = model(images.to(given.device), tokens.to(given.device), lengths)
        torch.autograd.backward(hinge(*(vectors.float() for vectors in embedded)))
        clip_grad_norm_(trained, 2.0)
        optimizer.step()
        wait_for(given.device)
        times.append(clock())
    ms = 1000 * (times[-1] - times[given.warm - 1]) / given.steps
    return {"ms a step": ms, "cell steps/s": 1000 / ms}
