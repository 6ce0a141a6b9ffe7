"""How a launch fills 1 to 512 devices: the packing that is chosen, its end, its idle time, and the bound of any order.

    python -m benchmarks.packing [--sweep coco_vsepp] [--backbones 10] [--devices 1 8 64]

The launch is simulated with the calibrated prices (docs/planning.md), with the rules of the real one. Three ways to
pack are compared: that of `cells_per_unit: auto`; the best one if each stage waited for the whole one before it; and
units of as many cells as can share one, with that wait. The second table is
the size of the paper's study, 450 cells: the sweep with ten backbones of different cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.machine import print_machine
from goal_core.data import published_counts
from goal_core.models.config import BackboneConfig
from runners.launch.devices import Devices
from runners.launch.estimate import published_prices, unopened
from runners.launch.order import planned
from runners.launch.packing import choose, duration
from runners.launch.prices import Prices
from runners.launch.simulation import PlannedUnit, Schedule, simulate
from sweeps import SweepConfig, Training, load_sweep, pack

DEVICES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
BACKBONES = (
    "resnet152", "resnet101", "resnet50", "resnet18", "resnext101_32x8d", "vit_base_patch16_224",
    "vit_small_patch16_224", "swin_base_patch4_window7_224", "tf_efficientnet_lite0", "resnet152.a1_in1k",
)  # fmt: skip


def with_barrier(
    trainings: list[Training], config: SweepConfig, prices: Prices, devices: int, auto: dict[str, int]
) -> float:
    """Seconds until the end where each stage waits for all of the one before."""
    seconds = 0.0
    for stage in config.stages:
        units = pack([one for one in trainings if one.stage == stage], config.execution, auto)
        alone: list[PlannedUnit] = planned([(unit, None) for unit in units], config, prices)
        seconds += simulate(alone, devices).end_s
    return seconds


def row(devices: int, schedule: Schedule, units: int, others: list[float], took: float) -> str:
    """One line of the table."""
    ends = "".join(f"{duration(one):>12} ({one / schedule.end_s:4.2f}x)" for one in others)
    return (
        f"{devices:>7}{units:>7}{duration(schedule.end_s):>12}{duration(schedule.bound_s):>12}"
        f"{100 * schedule.idle:>6.0f} %{duration(schedule.tail_s):>11}{duration(schedule.work_s):>12}"
        f"{ends}{took:>8.2f} s"
    )


def measure(config: SweepConfig, counts: list[int]) -> None:
    """Print the table of one sweep."""
    prices = published_prices(config, published_counts(config.data))
    trainings = unopened(config).trainings
    names = ", ".join(stage.name for stage in config.stages)
    print(f"{config.name}: {len(trainings)} trainings ({names}), {len(config.model.backbones)} backbones")
    print(
        f"{'devices':>7}{'units':>7}{'ends after':>12}{'at best':>12}{'idle':>8}{'tail':>11}{'device time':>12}"
        f"{'best, waiting':>20}{'together, waiting':>20}{'chosen in':>10}"
    )
    for count in counts:
        began = time.perf_counter()
        choice = choose(trainings, config, prices, Devices(count=count, kind="GPU"))
        took = time.perf_counter() - began
        chosen = choice.packing
        waiting = [with_barrier(trainings, config, prices, count, dict(one.limits)) for one in choice.others]
        others = [min(waiting), with_barrier(trainings, config, prices, count, {})]
        print(row(count, chosen.schedule, len(chosen.units), others, took), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", default="coco_vsepp", help="a sweep on published data")
    parser.add_argument("--backbones", type=int, default=10, help="backbones of the second table, at most 10")
    parser.add_argument("--devices", type=int, nargs="+", default=DEVICES)
    given = parser.parse_args(arguments)
    print_machine()
    print("simulated; prices calibrated for an RTX 3090")
    config = load_sweep(given.sweep, environ={})
    measure(config, given.devices)
    backbones = tuple(BackboneConfig(name=name) for name in BACKBONES[: given.backbones])
    print()
    measure(replace(config, model=replace(config.model, backbones=backbones)), given.devices)


if __name__ == "__main__":
    main()
