"""Memory that a unit holds after each of many epochs: it should stay flat.

    python -m benchmarks.epochs [--epochs 40] [--cells 3] [--stage finetune] [--device cuda]

Trains a small unit, evaluation and saving included. Prints what the process holds after the second epoch, in the
middle and at the end, and how much it grows in an epoch (the slope of a line through the second half).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.machine import MIB, held_bytes, print_machine
from benchmarks.step import drawn_images
from goal_core.data import open_dataset
from goal_core.models import BackboneConfig, GruConfig, ModelConfig
from goal_core.objectives import ObjectiveConfig, list_objectives
from goal_core.training import (
    EpochDone,
    ScratchFiles,
    SilentListener,
    StageConfig,
    TrainingEvent,
    TrainingPlan,
    UnitPlan,
    train_unit,
)


class _Watch(SilentListener):
    """Notes what is held after each epoch."""

    def __init__(self, device: str) -> None:
        self._device, self.held = device, list[int]()

    def events(self, events: Sequence[TrainingEvent]) -> None:
        if any(isinstance(event, EpochDone) for event in events):
            self.held.append(held_bytes(self._device))


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("epochs", 40), ("cells", 3), ("batch", 16), ("micro", 0), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--stage", choices=("frozen", "finetune"), default="finetune")
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args(arguments)
    print_machine(given.device)
    unit = UnitPlan(
        trainings=tuple(
            TrainingPlan(
                key=f"{one.pair}-{one.triplet}",
                cell_id=f"{one.pair}-{one.triplet}",
                objective=ObjectiveConfig(pair=one.pair, triplet=one.triplet),
                init=None,
            )
            for one in list_objectives()[: given.cells]
        ),
        data=drawn_images(4 * given.batch, 32),
        model=ModelConfig(
            backbone=BackboneConfig(name="test_resnet", weights="random"), text=GruConfig(word_dim=32), embed_dim=64
        ),
        seed=1,
        stage=StageConfig(
            name=given.stage, epochs=given.epochs, lr=1e-4, batch_size=given.batch, micro_batch=given.micro
        ),
        device=given.device,
        threads=given.threads,
    )
    watch = _Watch(given.device)
    with tempfile.TemporaryDirectory() as scratch:
        files = {one.key: ScratchFiles(Path(scratch) / one.key) for one in unit.trainings}
        train_unit(unit, files, watch, open_dataset(unit.data))
    held = np.array(watch.held) / MIB
    late = held[len(held) // 2 :]
    slope = np.polyfit(np.arange(len(late)), late, 1)[0] if len(late) > 1 else 0.0
    print(
        f"{given.stage}, {given.cells} cells, {given.epochs} epochs, {given.device}: {held[1]:.1f} MiB after the "
        f"second, {held[len(held) // 2]:.1f} in the middle, {held[-1]:.1f} at the end ({held[-1] / held[1]:.3f}); "
        f"{1024 * slope:+.1f} KiB an epoch in the second half"
    )


if __name__ == "__main__":
    main()
