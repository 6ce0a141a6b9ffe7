"""How fast devices are: one core of a CPU stands for all cores, and one GPU for all GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from goal_sweep.goal_core.models.sizes import BackboneSize
from goal_sweep.goal_core.training.config import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What one kind of device takes."""

    name: str
    kind: Literal["cpu", "cuda"]
    source: str
    train_factor: float
    """Time of a training step of a backbone divided by that of a forward pass."""
    gmac_s: float
    """Seconds of training a head for 1e9 multiply-adds of its forward pass, where `slower` is 1."""
    step_s: float
    """Seconds of a step of one cell besides the arithmetic: the objective, the optimiser, starting kernels."""
    slower: Mapping[Precision, float]
    """Time in each precision divided by that in which the forward passes were measured."""

    def forward_s(self, backbone: BackboneSize, image_size: int, precision: Precision) -> float:
        """Seconds in which an image passes a backbone, by its area."""
        milliseconds = backbone.cuda_ms if self.kind == "cuda" else backbone.cpu_ms
        return milliseconds / 1000 * self.slower[precision] * (image_size / backbone.image_size) ** 2


CPU: Final = Card(
    name="one AMD EPYC core",
    kind="cpu",
    source="torch 2.15; train_factor: 2.8 (resnet18) to 5.8 (tf_efficientnet_lite0); gmac_s: 0.08 for wide GRUs and "
    "BERT, 0.15 for narrow ones with their word vectors (emoji_vsepp); step_s: the scenes sweep's 12 ms a step; "
    "slower: assumed",
    train_factor=4.0,
    gmac_s=0.12,
    step_s=0.01,
    slower={"fp32": 1.0, "tf32": 1.0, "bf16": 1.0, "fp16": 1.0},
)
GPU: Final = Card(
    name="NVIDIA GeForce RTX 3090",
    kind="cuda",
    source="timm; train_factor: 3.1 (swin) to 4.0 (vit_base), benchmark-train-amp-nhwc-pt112-cu113-rtx3090; "
    "gmac_s: twice that of training vit_base there; step_s, slower: assumed",
    train_factor=3.5,
    gmac_s=0.0003,
    step_s=0.01,
    slower={"fp32": 2.0, "tf32": 2.0, "bf16": 1.0, "fp16": 1.0},
)
