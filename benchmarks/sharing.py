"""What sharing a frozen backbone is worth: one unit of 15 objectives against 15 units of one.

    python benchmarks/sharing.py --backbone test_resnet --size 64 --steps 10

Prints the backbone's share f of a solo step, the bound 15 / (f + 15 (1 - f)), and the measured ratio. Training images
are augmented, so that the backbone runs in every step.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

from goal_core.data import Dataset, open_dataset
from goal_core.data.config import ImageConfig, ScenesConfig
from goal_core.models import BackboneConfig, GruConfig, ModelConfig, build_backbone
from goal_core.objectives import ObjectiveConfig, list_objectives
from goal_core.training import ScratchFiles, SilentListener, StageConfig, TrainingPlan, UnitPlan, train_unit


class _Clock(SilentListener):
    """Seconds from the second step to the last."""

    def __init__(self) -> None:
        self.first = self.last = 0.0

    def step(self) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last


def _seconds(unit: UnitPlan, root: Path, dataset: Dataset) -> float:
    clock = _Clock()
    files = {training.key: ScratchFiles(root / training.key) for training in unit.trainings}
    train_unit(unit, files, clock, dataset)
    return clock.last - clock.first


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="test_resnet")
    parser.add_argument("--size", type=int, default=64, help="side of the images, pixels")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--embed-dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    image = ImageConfig(size=options.size, resize=options.size, augment="crop_flip")
    pairs = options.batch * (options.steps + 1)
    data = ScenesConfig(num_train=-(-pairs // 5), num_val=8, num_test=8, image=image)
    model = ModelConfig(
        backbone=BackboneConfig(name=options.backbone, weights="random"),
        text=GruConfig(word_dim=64),
        embed_dim=options.embed_dim,
    )
    stage = StageConfig(name="frozen", epochs=1, lr=1e-3, batch_size=options.batch, drop_last=True)
    dataset = open_dataset(data)
    trainings = tuple(
        TrainingPlan(key=o.name, cell_id=o.name, objective=ObjectiveConfig(pair=o.pair, triplet=o.triplet), init=None)
        for o in list_objectives()
    )

    def unit(*chosen: TrainingPlan) -> UnitPlan:
        where = {"device": options.device, "threads": options.threads}
        return UnitPlan(trainings=chosen, data=data, model=model, seed=1, stage=stage, **where)

    torch.set_num_threads(options.threads)
    backbone = build_backbone(model.backbone, image_size=options.size, seed=1).to(options.device)
    pixels = torch.zeros(options.batch, 3, options.size, options.size, dtype=torch.uint8, device=options.device)
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        backbone(pixels)
        began = time.perf_counter()
        for _ in range(options.steps):
            backbone(pixels)
        if options.device == "cuda":
            torch.cuda.synchronize()
        forward = time.perf_counter() - began
        with torch.enable_grad():
            solo = sum(_seconds(unit(one), Path(scratch) / f"solo-{n}", dataset) for n, one in enumerate(trainings))
            shared = _seconds(unit(*trainings), Path(scratch) / "shared", dataset)
    share = min(1.0, forward / (solo / len(trainings)))
    bound = len(trainings) / (share + len(trainings) * (1 - share))
    print(f"{options.backbone} {options.size} px, batch {options.batch}, {options.threads} threads, {options.device}")
    print(f"backbone's share of a solo step f = {share:.3f}; bound {bound:.2f}x; measured {solo / shared:.2f}x")
    print(f"= {solo / shared / bound:.2f} of the bound")


if __name__ == "__main__":
    main()
