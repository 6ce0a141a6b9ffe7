"""The optimiser, its learning rate over the epochs, and clipping."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from goal_core.training.config import StageConfig
from goal_core.training.failures import DivergedError


def build_optimizer(parameters: Iterable[nn.Parameter], stage: StageConfig) -> torch.optim.Optimizer:
    """Adam or AdamW with torch's default betas over all the parameters, in one group."""
    kind = torch.optim.AdamW if stage.optimizer == "adamw" else torch.optim.Adam
    # One pass over the weights instead of a dozen; a tenth of a step of VSE++ on a CPU.
    return kind(list(parameters), lr=stage.lr, weight_decay=stage.weight_decay, fused=True)


def lr_at(stage: StageConfig, epoch: int) -> float:
    """Learning rate of an epoch, counted from 0: the start value, dropped once for every drop already reached."""
    return stage.lr * stage.lr_drop_factor ** sum(epoch >= drop for drop in stage.lr_drops)


def clip_gradient(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Clip to a global norm (0 does not clip) and return the norm before it, a scalar tensor."""
    return nn.utils.clip_grad_norm_(list(parameters), max_norm if max_norm > 0 else float("inf"))


def check_finite(norm: Tensor, where: str) -> None:
    """Fail when a gradient norm is not finite.

    Raises:
        DivergedError: it is NaN or infinite.
    """
    if not torch.isfinite(norm):
        raise DivergedError(f"the gradient is not finite (norm {norm.item()}) at {where}")
