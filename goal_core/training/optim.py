"""The optimiser, its learning rate over the epochs, and clipping."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from goal_core.models import Heads, ImageBackbone, ParameterGroup
from goal_core.training.config import StageConfig
from goal_core.training.failures import DivergedError

_VALIDATED_EVERY = 500
"""Steps between validations of VSE++'s published code (`--val_step`)."""


def parameter_groups(heads: Heads, backbone: ImageBackbone | None, stage: StageConfig) -> list[ParameterGroup]:
    """What a stage trains, in an order that never changes: the heads' groups, then the backbone if it trains."""
    groups = heads.parameter_groups(stage.bert_lr_scale)
    if backbone is not None and stage.trains_backbone:
        groups += heads.backbone_groups(backbone, stage.backbone_lr_scale)
    return groups


def build_optimizer(groups: Sequence[ParameterGroup], stage: StageConfig) -> torch.optim.Optimizer:
    """Adam or AdamW with betas 0.9 and ``beta2``; each group keeps its ``lr_scale``."""
    kind = torch.optim.AdamW if stage.optimizer == "adamw" else torch.optim.Adam
    # One pass over the weights instead of a dozen; a tenth of a step of VSE++ on a CPU.
    settings = [
        {
            "params": list(group.parameters),
            "lr_scale": group.lr_scale,
            "weight_decay": stage.weight_decay if group.decay else 0.0,
        }
        for group in groups
    ]
    return kind(settings, lr=stage.lr, betas=(0.9, stage.beta2), fused=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set every group's learning rate to its share of the stage's."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def loss_scale(stage: StageConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Factor of a step's loss, all counted from 0: 1, but for the epochs of the ramp."""
    ramped = stage.frozen_epochs <= epoch < stage.frozen_epochs + stage.ramp_epochs
    return step / steps_per_epoch if ramped else 1.0


def validated_since(done: int, step: int) -> bool:
    """Whether VSE++'s published code has validated in this epoch, and so left training mode, before a step.

    It does so after every step whose number, counted from 1 over all epochs, is a multiple of 500.

    Args:
        done: steps of all epochs before this one.
        step: in the epoch, from 0.

    Source: vsepp/train.py, `train_start` once an epoch, `validate` within it.
    """
    return (done + step) // _VALIDATED_EVERY > done // _VALIDATED_EVERY


def lr_at(stage: StageConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Learning rate of a step, all counted from 0.

    `drops`: the start value, dropped once for every drop already reached. `linear`: of all T steps the first
    W = int(T * lr_warmup) give s / W of the start value at step s, the others (T - s) / (T - W).

    Source: X-VLM's schedule is `linear` with a tenth of the steps to rise.
    """
    if stage.schedule == "linear":
        done, total = epoch * steps_per_epoch + step, stage.epochs * steps_per_epoch
        rise = int(total * stage.lr_warmup)
        return stage.lr * (done / rise if done < rise else (total - done) / (total - rise))
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
