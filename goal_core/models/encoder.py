"""A model as evaluation and training see it: heads, perhaps its own backbone, and the precision they run in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from goal_core.data import Split
from goal_core.models.backbones import ImageBackbone
from goal_core.models.heads import Heads

_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """The precision of forward passes: `fp32`, `bf16` or `fp16`. Objectives and recalls compute in float32 anyway."""
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=_HALF[precision])


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Maps images and captions into the joint space."""

    heads: Heads
    backbone: ImageBackbone | None
    """None where a frozen backbone has been passed already, and images arrive as features."""
    precision: str
    device: torch.device

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for forward passes."""
        return autocast(self.precision, self.device)

    def train(self, mode: bool) -> None:
        """Put heads and backbone into training mode, or into evaluation mode."""
        self.heads.train(mode)
        if self.backbone is not None:
            self.backbone.train(mode)

    def features(self, inputs: Tensor) -> Tensor:
        """What the heads take of an image: the backbone's output, or the inputs where there is no backbone here."""
        return inputs if self.backbone is None else self.backbone(inputs)

    def images(self, inputs: Tensor) -> Tensor:
        """Unit vectors (B, D) of pixels (B, 3, S, S), or of features (B, F) or (B, R, F) if no backbone is here."""
        return self.heads.encode_images(self.features(inputs))

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        return self.heads.encode_texts(tokens_BL, lengths_B)


def num_features(backbone: ImageBackbone | None, split: Split) -> int:
    """Width of what the heads take: of the backbone's features, or of the split's precomputed regions."""
    if backbone is not None:
        return backbone.num_features
    assert split.region_shape is not None
    return split.region_shape[1]
