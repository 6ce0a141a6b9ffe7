"""How the cells of a unit run side by side: the path that a unit takes, and why.

`trunk` trains one cell after the other on every batch, and gives each cell the numbers it has alone, on the CPU bit for
bit. `heads` trains them as one stack (`cell_stack`), which adds up the same products in another order. A path never
depends on a measurement, so that the same sweep gives the same numbers on the same kind of device.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from goal_core.frameworks import framework_of
from goal_core.training.plan import UnitPlan


class UnitPath(NamedTuple):
    """The path that a unit takes."""

    name: Literal["none", "trunk", "heads"]
    why: str
    """For the log, one line."""


def choose_path(unit: UnitPlan) -> UnitPath:
    """Choose the path of a unit from its settings and its device.

    `auto` is `heads` on a GPU, where small kernels of one cell after the other leave it idle. On a CPU it is `trunk`:
    stacked GRUs measured no faster there, and the numbers stay those of each cell alone.
    """
    count = len(unit.trainings)
    if count == 1:
        return UnitPath("none", "the unit has one cell")
    if unit.sharing in ("none", "trunk"):
        return UnitPath("trunk", f"sharing {unit.sharing} is set")
    if obstacle := stack_obstacle(unit):
        return UnitPath("trunk", f"sharing {unit.sharing}, but {obstacle}")
    if unit.sharing == "heads":
        return UnitPath("heads", "sharing heads is set")
    if unit.device == "cpu":
        return UnitPath("trunk", "sharing auto on a CPU, where stacked heads are no faster and lose bit-equal numbers")
    return UnitPath("heads", "sharing auto on a GPU")


def stack_obstacle(unit: UnitPlan) -> str:
    """Why the heads of a unit's cells cannot be stacked, in words; empty if they can."""
    if not framework_of(unit.model).stacks_heads:
        return f"framework {unit.model.framework} has no stacked heads"
    if not unit.stage.shares_backbone:
        return f"stage {unit.stage.name} does not share a frozen backbone"
    if unit.precision == "fp16":
        return "with precision fp16 each cell skips steps of its own"
    if unit.stage.micro_batch:
        return f"micro_batch {unit.stage.micro_batch} encodes each cell's batches in chunks"
    if unit.processes > 1:
        return f"{unit.processes} devices train each cell together"
    return ""
