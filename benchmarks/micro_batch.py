"""What `micro_batch` costs and saves: memory and time of a finetune step, whole and in chunks.

    python benchmarks/micro_batch.py [--backbone resnet18] [--size 112] [--batch 64]

Activation memory is the peak of a step less what the process holds before it (weights, gradients, optimiser). On a CPU
each row is a process of its own, because a process does not return memory, and seconds are those of the processor, so
that other work on the machine counts little. The last rows let the batch grow at one micro_batch, on a small model:
their memory should stay flat but for the pixels and the embeddings.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import fields, replace
from pathlib import Path

import psutil
import torch

from goal_core.data import Batch, open_dataset
from goal_core.data.config import ImageConfig, ScenesConfig
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, XvlmConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training import ScratchFiles, SilentListener, StageConfig, TrainingPlan, UnitPlan, train_unit
from goal_core.training.cell_trainer import CellTrainer

MIB = 2**20


class _Peak:
    """The most memory that this process holds while the context is open, in bytes."""

    def __init__(self, device: str) -> None:
        self._device, self._over, self.bytes = device, threading.Event(), 0

    def __enter__(self) -> _Peak:
        if self._device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        else:
            self._thread = threading.Thread(target=self._look)
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._device == "cuda":
            self.bytes = torch.cuda.max_memory_allocated()
        else:
            self._over.set()
            self._thread.join()

    def _look(self) -> None:
        process = psutil.Process()
        while not self._over.wait(0.01):
            self.bytes = max(self.bytes, process.memory_info().rss)

    def held(self) -> int:
        """What it holds now."""
        gc.collect()
        return torch.cuda.memory_allocated() if self._device == "cuda" else int(psutil.Process().memory_info().rss)


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Seconds and activation memory of a step."""
    image = ImageConfig(size=options.size, resize=options.size, augment="none")
    data = ScenesConfig(num_train=-(-options.batch * 2 // 5), num_val=4, num_test=4, image=image)
    model = ModelConfig(
        framework=options.framework,
        backbone=BackboneConfig(name=options.backbone, weights="random"),
        text=GruConfig(word_dim=64),
        bert=BertConfig(weights="random", layers=4, width=256, heads=4),
        xvlm=XvlmConfig(fusion_layer=2),
        embed_dim=256,
    )
    stage = StageConfig(
        name="finetune", epochs=1, lr=1e-4, batch_size=options.batch, micro_batch=options.micro, drop_last=True
    )
    cell = TrainingPlan(key="cell", cell_id="cell", objective=ObjectiveConfig(pair="sig-ms", triplet="cir"), init=None)
    unit = UnitPlan(
        trainings=(cell,), data=data, model=model, seed=1, stage=stage, device=options.device, threads=options.threads
    )
    seconds: list[float] = []
    memory: list[int] = []
    step = CellTrainer.step

    def timed(self: CellTrainer, inputs: torch.Tensor, batch: Batch, **named: float) -> None:
        if not memory:  # Adam's state first, with a batch too small to count
            step(self, inputs[:2], _first(batch, 2), **named)
        peak = _Peak(options.device)
        before = peak.held()
        if options.device == "cuda":
            torch.cuda.synchronize()
        clock = time.perf_counter if options.device == "cuda" else time.process_time
        began = clock()
        with peak:
            step(self, inputs, batch, **named)
            if options.device == "cuda":
                torch.cuda.synchronize()
        seconds.append(clock() - began)
        memory.append(peak.bytes - before)

    CellTrainer.step = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = train_unit(
            unit, {"cell": ScratchFiles(Path(scratch) / "cell")}, SilentListener(), open_dataset(data)
        )
    if not seconds:
        raise SystemExit(str(outcomes))
    return {"seconds": min(seconds), "mib": memory[0] / MIB}


def _first(batch: Batch, count: int) -> Batch:
    cut = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return replace(batch, **{name: value[:count] for name, value in cut.items() if value is not None})


def apart(options: argparse.Namespace, **changes: object) -> dict[str, float]:
    """Measure in a process of its own."""
    settings = {**vars(options), **changes, "one": True}
    flags = [f"--{name}={value}" for name, value in settings.items() if name != "one"]
    done = subprocess.run([sys.executable, __file__, "--one", *flags], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", default="vsepp", help="or vse_infty, xvlm: these have dropout")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=112, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--micro", type=int, default=0)
    parser.add_argument("--largest", type=int, default=4096, help="largest batch of the growing ones")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options)))
        return
    print(f"{options.framework}, {options.backbone} at {options.size} px, {options.device}, {options.threads} threads")
    whole = apart(options)
    print(f"batch {options.batch:5} at once       {whole['seconds']:7.2f} s  {whole['mib']:8.0f} MiB of activations")
    for parts in (2, 4, 8, 16):
        found = apart(options, micro=options.batch // parts)
        print(
            f"batch {options.batch:5} in {parts:3} chunks {found['seconds']:7.2f} s  {found['mib']:8.0f} MiB   "
            f"{found['seconds'] / whole['seconds']:.2f} of the time, {found['mib'] / whole['mib']:.3f} of the memory"
        )
    print("growing batch of micro_batch 32 on test_resnet at 32 px")
    batch = 64
    while batch <= options.largest:
        found = apart(options, framework="vsepp", backbone="test_resnet", size=32, batch=batch, micro=32)
        print(
            f"batch {batch:5}  {found['seconds']:7.2f} s, {1000 * found['seconds'] / batch:.2f} ms a pair, "
            f"{found['mib']:6.0f} MiB"
        )
        batch *= 4


if __name__ == "__main__":
    main()
