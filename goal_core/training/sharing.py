"""How the cells of a unit run side by side: the path that a unit takes, and why.

`trunk` trains one cell after the other on every batch, and gives each cell the numbers it has alone, on the CPU bit for
bit. `heads` trains them as one stack (`cells.stack`), which adds up the same products in another order. A path never
depends on a measurement, so that the same sweep gives the same numbers on the same kind of device.
"""

from __future__ import annotations

from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.training.plan import UnitPlan


def choose_path(unit: UnitPlan) -> tuple[str, str]:
    """Choose the path of a unit from its settings and its device: `none`, `trunk` or `heads`, and why, in a line.

    `auto` is `heads` on a GPU, which small kernels of one cell after the other leave idle, and `trunk` on a CPU.
    """
    if len(unit.trainings) == 1:
        return "none", "the unit has one cell"
    if unit.sharing in ("none", "trunk"):
        return "trunk", f"sharing {unit.sharing} is set"
    if obstacle := _obstacle(unit):
        return "trunk", f"sharing {unit.sharing}, but {obstacle}"
    if unit.sharing == "heads":
        return "heads", "sharing heads is set"
    if unit.device == "cpu":
        return "trunk", "sharing auto on a CPU, where it keeps the numbers of each cell alone bit for bit"
    return "heads", "sharing auto on a GPU"


def _obstacle(unit: UnitPlan) -> str:
    """Why heads cannot be stacked, in words; empty if they can."""
    model, stage = unit.model, unit.stage
    if not framework_of(model).stacks(model):
        return f"framework {model.framework} has no stacked heads" + " of this text encoder" * bool(model.text.encoder)
    if not stage.shares_backbone:
        return f"stage {stage.name} does not share a frozen backbone"
    if unit.precision == "fp16":
        return "with precision fp16 each cell skips steps of its own"
    if 0 < stage.micro_batch < stage.batch_size:
        return f"micro_batch {stage.micro_batch} encodes each cell's batches in chunks"
    return ""
