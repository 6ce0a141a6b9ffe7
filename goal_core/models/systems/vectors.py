"""Small heads on vectors of images and texts that any encoders have computed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from goal_core.basics.errors import ConfigError
from goal_core.basics.seeding import derive_seed
from goal_core.models.config import ModelConfig
from goal_core.models.heads import Heads
from goal_core.models.stacked.vsepp import StackedVectors
from goal_core.models.systems.vsepp import ImageHead


class VectorHeads(Heads):
    """A head, or none, on either side.

    Args:
        model: its `vectors` say which heads there are.
        num_features: numbers of an image's vector.
        text_features: numbers of a text's vector.
        seed: the cell's seed, which draws the initial weights.
        keeps: whether a head that does not change the width begins as the identity.

    Raises:
        ConfigError: images and texts would have vectors of different widths.
    """

    def __init__(
        self, model: ModelConfig, *, num_features: int, text_features: int, seed: int, keeps: bool = False
    ) -> None:
        super().__init__()
        sides = (model.vectors.image_head, num_features), (model.vectors.text_head, text_features)
        image, text = (width if kind == "none" else model.embed_dim for kind, width in sides)
        if image != text:
            raise ConfigError(
                f"images would have {image} numbers and texts {text}; set model.embed_dim to the width of the side "
                "without a head"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image, self.text = (
                Normalized() if kind == "none" else ImageHead(width, model.embed_dim) for kind, width in sides
            )
        for head in (self.image, self.text):
            if keeps and isinstance(head, ImageHead) and head.fc.in_features == head.fc.out_features:
                nn.init.eye_(head.fc.weight)

    def stacked(self, tensors: Mapping[str, Tensor]) -> StackedVectors:
        """Both heads of several cells at once; see :meth:`goal_core.models.heads.Heads.stacked`."""
        return StackedVectors(tensors)


class Normalized(nn.Module):
    """l2norm, and nothing to train."""

    def forward(self, vectors_BF: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map vectors (B, F) to unit vectors (B, F)."""
        return normalize(vectors_BF, dim=-1)
