"""What checksums cost: the share of a training's time that goes into verifying what is written and read.

    python -m benchmarks.verification --steps-per-epoch 4425 --embed-dim 1024 --batch 128

Trains the heads of a VSE++ cell for a few steps on features of a frozen backbone, as they are in every cell of a unit,
and saves its state with checksums and without. Prints the seconds of a step, of a checksum, and their ratio for an
epoch, after which the state and often the best weights are saved, and for a whole training, with its reads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import print_machine
from goal_core.checkpoints import read_checkpoint
from goal_core.data import open_dataset
from goal_core.data.config import ImageConfig, ScenesConfig
from goal_core.models import BackboneConfig, GruConfig, ModelConfig
from goal_core.objectives import ObjectiveConfig
from goal_core.training import ScratchFiles, SilentListener, StageConfig, TrainingPlan, UnitPlan, train_unit


class _Clock(SilentListener):
    """Seconds from the second step to the last."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def step(self) -> None:
        self.times.append(time.perf_counter())


class _KeptFiles(ScratchFiles):
    """Files that stay after the training."""

    def discard(self, name: str) -> None:
        """Keep the file."""


def _best_of(act: Callable[[], object], times: int = 5) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-per-epoch", type=int, default=4425, help="COCO: 566,435 captions in batches of 128")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--embed-dim", type=int, default=1024)
    parser.add_argument("--word-dim", type=int, default=300)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    print_machine(given.device)
    from goal_core.checkpoints import file  # its checksum is measured by itself

    data = ScenesConfig(
        num_train=given.batch * (given.steps + 1) // 5 + 1,
        num_val=8,
        num_test=8,
        image=ImageConfig(size=32, resize=32, augment="none"),
    )
    unit = UnitPlan(
        trainings=(
            TrainingPlan(key="k", cell_id="c", objective=ObjectiveConfig(pair="con", triplet="con"), init=None),
        ),
        data=data,
        model=ModelConfig(
            backbone=BackboneConfig(name="test_resnet", weights="random"),
            text=GruConfig(word_dim=given.word_dim),
            embed_dim=given.embed_dim,
        ),
        seed=1,
        stage=StageConfig(name="frozen", epochs=1, lr=1e-4, batch_size=given.batch),
        device=given.device,
        threads=2,
    )
    clock = _Clock()
    with tempfile.TemporaryDirectory(prefix="goal-sweep-verification-") as scratch:
        files = _KeptFiles(Path(scratch) / "k")
        train_unit(unit, {"k": files}, clock, open_dataset(data))
        step = (clock.times[-1] - clock.times[0]) / (len(clock.times) - 1)
        sizes, checks = {}, {}
        for name in ("last.safetensors", "best-1.safetensors"):
            path = files.path(name)
            tensors, state = read_checkpoint(path)
            sizes[name] = path.stat().st_size
            checks[name] = _best_of(lambda tensors=tensors, state=state: file._checksum(tensors, state))
    last, best = checks["last.safetensors"], checks["best-1.safetensors"]
    epoch = given.steps_per_epoch * step
    total = given.epochs * epoch
    # Each epoch writes the state, and at worst new best weights; a resumed training reads both, and the end reads best
    # twice and hashes its file once more.
    spent = given.epochs * (last + best) + (last + best) + 3 * best
    print(f"step {1000 * step:.1f} ms, epoch of {given.steps_per_epoch} steps {epoch:.0f} s")
    for name, size in sizes.items():
        print(
            f"{name}: {size / 1e6:.0f} MB, checksum {1000 * checks[name]:.0f} ms ({size / 1e9 / checks[name]:.2f} GB/s)"
        )
    print(
        f"share of an epoch: {100 * (last + best) / epoch:.3f} %; of {given.epochs} epochs: {100 * spent / total:.3f} %"
    )


if __name__ == "__main__":
    main()
