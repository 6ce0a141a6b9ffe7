"""What sharing a frozen backbone is worth: one unit of 15 objectives against 15 units of one.

    python -m benchmarks.sharing --backbone test_resnet --size 64 --steps 10
    python -m benchmarks.sharing --device cuda --backbone resnet152 --size 224 --batch 128 --embed-dim 1024

Prints the backbone's share f of a solo step, the bound 15 / (f + 15 (1 - f)), and the measured ratio of each way of
sharing: `trunk` trains the cells one after the other on every batch, `heads` as one. Training images are augmented, so
that the backbone runs in every step. `--features` leaves backbone and images out: the cells read vectors, as in the
quickstart, and what is measured is the heads. `--cells 1 2 4 8 15 45` shows how each way grows. Each is also compared
with a process for each cell that trains it with the usual tools (`benchmarks.usual`).

`--framework vse_infty` trains its heads instead of those of VSE++: the cells of the last map of the backbone, and a
BERT with random weights (`--bert-layers`, `--bert-width`). The usual tools are then left out.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.machine import clock_of, print_machine, wait_for
from benchmarks.usual import apart
from goal_core.data import Dataset, open_dataset
from goal_core.data.config import ImageConfig, PrecompConfig, ScenesConfig
from goal_core.models import BackboneConfig, BertConfig, GruConfig, ModelConfig, build_backbone
from goal_core.objectives import ObjectiveConfig, list_objectives
from goal_core.training import ScratchFiles, SilentListener, StageConfig, TrainingPlan, UnitPlan, train_unit


class _Clock(SilentListener):
    """Seconds from the second step to the last: of the processor with one CPU thread, else of the clock."""

    def __init__(self, unit: UnitPlan) -> None:
        self.now = clock_of(unit.device, unit.threads)
        self.device = unit.device
        self.first = self.last = 0.0
        self.steps = -1

    def step(self) -> None:
        wait_for(self.device)
        self.last = self.now()
        self.first = self.first or self.last
        self.steps += 1


@dataclass
class _Bench:
    """The unit of all cells, and where it trains."""

    unit: UnitPlan
    dataset: Dataset
    scratch: Path
    number: int = 0

    def step_ms(self, cells: Sequence[TrainingPlan], sharing: str) -> float:
        """Milliseconds of one step of these cells in one unit."""
        self.number += 1
        clock = _Clock(self.unit)
        files = {cell.key: ScratchFiles(self.scratch / str(self.number) / cell.key) for cell in cells}
        unit = replace(self.unit, trainings=tuple(cells), sharing=sharing)
        train_unit(unit, files, clock, self.dataset)
        return 1000 * (clock.last - clock.first) / clock.steps


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="test_resnet")
    parser.add_argument("--size", type=int, default=64, help="side of the images, pixels")
    parser.add_argument("--framework", choices=("vsepp", "vse_infty"), default="vsepp")
    parser.add_argument("--bert-layers", type=int, default=2)
    parser.add_argument("--bert-width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--embed-dim", type=int, default=64)
    parser.add_argument("--word-dim", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--features", action="store_true", help="vectors that ship with goal-sweep instead of images")
    parser.add_argument("--cells", type=int, nargs="+", default=[15], help="cells of a unit")
    options = parser.parse_args(arguments)
    if options.features and options.framework != "vsepp":
        parser.error("--features are one vector per image, which vsepp reads")
    return options


def _unit(options: argparse.Namespace) -> UnitPlan:
    image = ImageConfig(size=options.size, resize=options.size, augment="crop_flip")
    pairs = options.batch * (options.steps + 1)
    data = ScenesConfig(num_train=-(-pairs // 5), num_val=8, num_test=8, image=image)
    backbone = BackboneConfig(name=options.backbone, weights="random")
    if options.features:
        data = PrecompConfig(name="emoji", root="shipped:emoji_precomp", max_captions=4, max_words=10)
        backbone = BackboneConfig(name="tf_efficientnet_lite0", weights="precomputed")
    model = ModelConfig(
        framework=options.framework,
        backbone=backbone,
        text=GruConfig(word_dim=options.word_dim),
        bert=BertConfig(weights="random", layers=options.bert_layers, width=options.bert_width, heads=4),
        embed_dim=options.embed_dim,
    )
    names = [(one.pair, one.triplet) for one in list_objectives()]
    repeated = [names[number % len(names)] for number in range(max(options.cells))]
    return UnitPlan(
        trainings=tuple(
            TrainingPlan(
                key=f"{number}", cell_id=f"{number}", objective=ObjectiveConfig(pair=pair, triplet=triplet), init=None
            )
            for number, (pair, triplet) in enumerate(repeated)
        ),
        data=data,
        model=model,
        seed=1,
        stage=StageConfig(name="frozen", epochs=1, lr=1e-3, batch_size=options.batch, drop_last=True),
        precision=options.precision,
        device=options.device,
        threads=options.threads,
    )


def _forward_ms(options: argparse.Namespace, unit: UnitPlan) -> float:
    """Milliseconds of the frozen backbone alone; 0 where there is none."""
    if options.features:
        return 0.0
    cells = options.framework == "vse_infty"
    backbone = build_backbone(unit.model.backbone, image_size=options.size, seed=1, cells=cells).to(options.device)
    pixels = torch.zeros(options.batch, 3, options.size, options.size, dtype=torch.uint8, device=options.device)
    with torch.no_grad():
        backbone(pixels)
        now = _Clock(unit).now
        began = now()
        for _ in range(options.steps):
            backbone(pixels)
        wait_for(options.device)
    return 1000 * (now() - began) / options.steps


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    print_machine(options.device)
    unit = _unit(options)
    what = "features" if options.features else f"{options.backbone} {options.size} px"
    print(
        f"{options.framework}, {what}, batch {options.batch}, D {options.embed_dim}, {options.precision}, "
        f"{options.threads} threads, {options.device}"
    )
    forward = _forward_ms(options, unit)
    with tempfile.TemporaryDirectory() as scratch:
        bench = _Bench(unit, open_dataset(unit.data), Path(scratch))
        solos = [bench.step_ms([one], "none") for one in unit.trainings[: max(options.cells)][:15]]
        solo = sum(solos) / len(solos)
        share = min(1.0, forward / solo)
        print(f"a cell alone {solo:.1f} ms a step, of which the backbone's share f = {share:.3f}")
        usual = apart(unit, options.steps)["step_ms"] if options.framework == "vsepp" else 0.0
        if usual:
            print(f"a process of the usual tools {usual:.1f} ms a step")
        for count in options.cells:
            cells = unit.trainings[:count]
            bound = count / (share + count * (1 - share))
            for sharing in ("trunk", "heads") if count > 1 else ("trunk",):
                took = bench.step_ms(cells, sharing)
                compared = f", {count * usual / took:5.2f} times faster than {count} processes of the usual tools"
                print(
                    f"{count:3d} cells, {sharing}: {took:8.1f} ms a step, {count * solo / took:5.2f} times faster than "
                    f"alone, {took / solo:5.2f} times the time of one (bound of the backbone alone {bound:.2f})"
                    f"{compared if usual else ''}"
                )


if __name__ == "__main__":
    main()
