r"""A unit's steps on made-up photographs: its cells alone, sharing a backbone, or stacked; fine-tuned in every way.

    python -m benchmarks.steps --rows one trunk heads --backbone test_resnet --size 64
    python -m benchmarks.steps --rows compiled finetune 4-chunks --backbone resnet18 --size 112
    python -m benchmarks.steps --device cuda --backbone resnet152 --size 224 --batch 128 --embed-dim 1024 --workers 8 \
        --images 2000 --precisions bf16 fp32 --sources files pack

The photographs are augmented, so that a frozen backbone runs in every step; they come from `files` or from a `pack`.
`speed-up` compares the steps that all cells take in a second with the first row of the same stage. On a CPU with one
thread and no workers times are the processor's own, so that other work counts little.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, Literal
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch.profiler import ProfilerActivity, profile

from benchmarks.program import MIB, Report, Row, clock_of, run, wait_for
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.data.config import ImageConfig, KarpathyConfig
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.packs import plan_pack, write_pack
from goal_sweep.goal_core.models import BackboneConfig, ModelConfig, TextConfig
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.objectives import ObjectiveConfig, list_objectives
from goal_sweep.goal_core.training import Callback, FolderFiles, StageConfig, TrainingPlan, UnitPlan, train
from goal_sweep.goal_core.training.cells.roster import EpochBatches
from goal_sweep.goal_core.training.train import train_unit

TUNED = {"stage": "finetune"}
ROWS: Mapping[str, Mapping[str, Any]] = {
    "one": {}, "trunk": {"sharing": "trunk"}, "heads": {"sharing": "heads"},
    "heads-compiled": {"sharing": "heads", "compile": "on"},
    "finetune": TUNED, "compiled": {**TUNED, "compile": "on"}, "channels-first": {**TUNED, "channels_first": True},
    **{f"{count}-chunks": {**TUNED, "chunks": count} for count in (2, 4, 8)},
}  # fmt: skip
"""What each row trains: one cell, or with `sharing` all. On a GPU channels come last except in `channels-first`."""
OPTIONS: Mapping[str, Any] = {
    "data": "", "images": 64, "backbone": "test_resnet", "size": 64, "batch": 32, "embed_dim": 64, "word_dim": 300,
    "threads": 1, "workers": 0, "warm": 2, "steps": 10,
    "cells": 15, "rows": ("one", "trunk", "heads"), "sources": ("files",), "precisions": ("fp32",),
}  # fmt: skip
"""`data`: folder of the photographs, made where there are none."""
PROFILED = 3
"""Steps after those that are timed, to see how long a GPU works in one."""
CAPTIONS, WORDS, VOCABULARY = 5, 12, 12_000
"""Of an image; of a caption, COCO's mean; and of all captions, about COCO's."""


def measure(given: argparse.Namespace, report: Report) -> None:
    """Measure each row with each source and precision."""
    with photographs(given, given.batch * (given.warm + given.steps + 4)) as root:
        if "pack" in given.sources:
            dataset = open_dataset(data := data_of(root, given.size))
            write_pack(dataset, plan_pack(dataset, data.image, root / "packs"))
        for precision in given.precisions:
            for source in given.sources:
                packs = root / "packs" if source == "pack" else None
                table = f"{given.backbone} at {given.size} px, batch {given.batch}, {precision}, images from {source}"
                firsts: dict[str, Row] = {}
                for name in given.rows:
                    stage = ROWS[name].get("stage", "frozen")
                    row = partial(_row, given, root, packs, precision, name, firsts.get(stage))
                    firsts.setdefault(stage, report.row(table, name, row))


def _row(
    given: argparse.Namespace, root: Path, packs: Path | None, precision: Any, name: str, first: Row | None
) -> Row:
    """A row, from a process of its own, which an error of CUDA may end; and its ratios to the first of its stage."""
    # Imports once what all rows need. What libraries ask of CUDA as they are imported would not survive the fork.
    context = get_context("spawn" if given.device == "cuda" else "forkserver")
    context.set_forkserver_preload([train.__name__, "timm"])
    with ProcessPoolExecutor(1, context) as own:
        row = own.submit(_measured, given, root, packs, precision, name).result()
    row["images/s"] = given.batch * row["cell steps/s"]
    compared = {"/ first": "ms a step", "speed-up": "cell steps/s", "MiB / first": "MiB"}
    base = row if first is None else first
    return row | {ratio: row[key] / base[key] for ratio, key in compared.items() if key in row.keys() & base.keys()}


def _measured(given: argparse.Namespace, root: Path, packs: Path | None, precision: Any, name: str) -> dict[str, float]:
    changes = dict(ROWS[name])
    if changes.pop("channels_first", False):  # in this process, which is the row's own
        placed = ImageBackbone.placed
        ImageBackbone.placed = lambda self, device, **how: placed(self, torch.device("cpu"), **how).to(device)  # type: ignore[method-assign]
    if count := changes.pop("chunks", 0):
        changes["stage_settings"] = {"micro_batch": given.batch // count}
    data = data_of(root, given.size)
    cells = given.cells if "sharing" in changes else 1
    return timed(
        given, unit_of(given, data, cells=cells, precision=precision, packs=packs, **changes), open_dataset(data)
    )


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


def data_of(root: Path, size: int) -> KarpathyConfig:
    """The settings of the photographs."""
    image = ImageConfig(size=size, resize=size * 8 // 7, augment="crop_flip")
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
        self._done, self._began, self._made = 0, (0.0, 0.0, 0.0), perf_counter()
        self._batches: EpochBatches | None = None
        self.row: dict[str, float] = {}

    def watched(self, *arguments: Any) -> EpochBatches:
        """The batches of the epoch; they note how long they are waited for."""
        self._batches = EpochBatches(*arguments)
        return self._batches

    def step(self) -> None:
        assert self._batches is not None
        self._done += 1
        if self._done not in (1, self._warm, self._end, self._end + PROFILED):
            return
        wait_for(self._device)
        stamp = self._now(), perf_counter(), self._batches.waited
        if self._done == 1:
            self.row["first step s"] = stamp[1] - self._made
        if self._done == self._warm:
            self._began = stamp
            if self._profiler is not None:
                torch.cuda.reset_peak_memory_stats()
        elif self._done == self._end:
            took, passed, waited = (now - then for now, then in zip(stamp, self._began, strict=True))
            ms = 1000 * took / (self._end - self._warm)
            self.row |= {"ms a step": ms, "cell steps/s": 1000 * self._cells / ms, "data wait %": 100 * waited / passed}
            if self._profiler is None:
                raise _Enough
            self.row["MiB"] = torch.cuda.max_memory_reserved() / MIB  # with what CUDA graphs keep
            self._profiler.start()
        elif self._done > self._end:
            assert self._profiler is not None
            self._profiler.stop()
            kernels = [event for event in self._profiler.key_averages() if event.device_type.name == "CUDA"]
            worked_ms = sum(event.self_device_time_total for event in kernels) / 1e3 / PROFILED
            self.row["kernels"] = sum(event.count for event in kernels) / PROFILED
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
    with tempfile.TemporaryDirectory() as scratch, mock.patch.object(train, "EpochBatches", clock.watched):
        files = {plan.key: _Nowhere(Path(scratch, plan.key)) for plan in unit.trainings}
        try:
            train_unit(unit, files, clock, dataset)
        except _Enough:
            return clock.row
    raise RuntimeError("the training ended before these steps")


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
