"""How a unit's backbones run on its device: their layout in memory, compiled or not, with or without recomputation.

None of it changes a result but by rounding, so none is part of an id. On a CPU the defaults change nothing at all.
"""

from __future__ import annotations

import torch
from torch import nn

from goal_core.models import ImageBackbone
from goal_core.training.plan import UnitPlan


def place(backbone: ImageBackbone, unit: UnitPlan) -> ImageBackbone:
    """Put a backbone on the unit's device, in the form in which the unit runs it.

    Raises:
        ConfigError: `recompute` is set, but the backbone has no blocks.
    """
    backbone = backbone.to(unit.device)
    if wants_channels_last(backbone, unit):
        backbone.use_channels_last()
    if unit.stage.recompute and unit.stage.trains_backbone:
        backbone.recompute()
    if unit.compiled:
        backbone.compile_training()
    return backbone


def wants_channels_last(backbone: nn.Module, unit: UnitPlan) -> bool:
    """Whether a backbone's images and filters lie in memory pixel by pixel.

    `auto`: on a GPU in half precision, whose tensor cores want it, for backbones with more convolutions than the one
    that cuts patches. On a CPU never, so that numbers stay what they were.
    """
    if unit.memory_format != "auto":
        return unit.memory_format == "channels_last"
    convolutions = sum(isinstance(module, nn.Conv2d) for module in backbone.modules())
    return torch.device(unit.device).type == "cuda" and unit.precision != "fp32" and convolutions > 1
