"""One optimiser step: parameter groups, optimiser, learning rate, the loss's warm-up and scale, and clipping.

The scale of an objective stands beside a loss of the framework's own, and is measured once, with the weights that the
objective begins with. The objectives' gradients differ in size by orders of magnitude, so that no factor serves all of
them: beside image-text matching some would train the backbones, and others would leave that to the matching alone. Each
is multiplied by what gives its gradient on the embeddings the size that the gradient of the replaced loss has there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.devices import full_precision
from goal_sweep.goal_core.basics.errors import DivergedError
from goal_sweep.goal_core.models.backbones import ImageBackbone
from goal_sweep.goal_core.models.heads import Heads, Pairs, ParameterGroup
from goal_sweep.goal_core.training.config import StageConfig
from goal_sweep.goal_core.training.diagnostics import RATIO

VALIDATED_EVERY: Final = 500
"""Steps between validations in VSE++'s published code (`--val_step`)."""


def parameter_groups(heads: Heads, backbone: ImageBackbone | None, stage: StageConfig) -> list[ParameterGroup]:
    """What a stage trains, in an order that never changes: the heads' groups, then the backbone if it trains."""
    groups = heads.parameter_groups(stage.bert_lr_scale)
    if backbone is not None and stage.trains_backbone:
        groups += heads.backbone_groups(backbone, stage.backbone_lr_scale)
    return groups


def build_optimizer(groups: Sequence[ParameterGroup], stage: StageConfig) -> torch.optim.Optimizer:
    """Adam or AdamW with betas 0.9 and ``beta2``; each group keeps its ``lr_scale``."""
    kind = torch.optim.AdamW if stage.optimizer == "adamw" else torch.optim.Adam
    settings = []
    for group in groups:
        decay = stage.weight_decay if group.decay else 0.0
        settings.append({"params": list(group.parameters), "lr_scale": group.lr_scale, "weight_decay": decay})
    # Fused: one pass over the weights instead of a dozen, a tenth of a VSE++ step on a CPU.
    return kind(settings, lr=stage.lr, betas=(0.9, stage.beta2), fused=True)


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set each group's learning rate: the stage's, times the group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]


def lr_at(stage: StageConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Learning rate of a step, all counted from 0.

    `drops`: the initial value, dropped once for every drop already reached. `linear`: of all T steps the first
    W = int(T * lr_warmup) have s / W of the initial value at step s, the others (T - s) / (T - W).

    Source: X-VLM's schedule is `linear`, rising over a tenth of the steps.
    """
    if stage.schedule == "linear":
        done, total = epoch * steps_per_epoch + step, stage.epochs * steps_per_epoch
        rise = int(total * stage.lr_warmup)
        return stage.lr * (done / rise if done < rise else (total - done) / (total - rise))
    return stage.lr * stage.lr_drop_factor ** sum(epoch >= drop for drop in stage.lr_drops)


def loss_scale(stage: StageConfig, epoch: int, step: int, steps_per_epoch: int) -> float:
    """Factor of a step's loss, all counted from 0: 1, except in the epochs of the ramp."""
    return step / steps_per_epoch if stage.frozen_epochs <= epoch < stage.frozen_epochs + stage.ramp_epochs else 1.0


def sum_hinge(image_BD: Tensor, text_BD: Tensor, margin: float, ids: Tensor | None = None) -> Tensor:
    """Hinge summed over all negative pairs and both directions, () or (C,): the loss of warm-up epochs.

    With random weights the hardest negatives of a batch are mostly noise, and pushing them alone can draw all
    embeddings together. The sum over all negatives does not.

    Args:
        image_BD: unit vectors, (B, D), or (C, B, D) of C cells; row i belongs to row i of the texts.
        ids: integer, (B,); two pairs of the same id are not negative pairs. None: all ids differ.

    Source: VSE++ (Faghri et al., 2018), eq. 4; first epoch of VSE-infinity (Chen et al., 2021).
    """
    with full_precision(image_BD.device):
        scores_BB = image_BD.float() @ text_BD.float().mT
        positive_B = scores_BB.diagonal(0, -2, -1)
        if ids is None:
            ids = torch.arange(scores_BB.shape[-1], device=scores_BB.device)
        others_BB = ids[:, None] != ids
        i2t = (margin + scores_BB - positive_B[..., :, None]).clamp(min=0)
        t2i = (margin + scores_BB - positive_B[..., None, :]).clamp(min=0)
        return ((i2t + t2i) * others_BB).sum((-2, -1))


def validated_since(done: int, step: int) -> bool:
    """Whether VSE++'s published code has validated in this epoch before a step, and so has left training mode.

    It validates after every step whose number, counted from 1 over all epochs, is a multiple of `VALIDATED_EVERY`.

    Source: vsepp/train.py, `train_start` once an epoch, `validate` within it.
    """
    return (done + step) // VALIDATED_EVERY > done // VALIDATED_EVERY


def clip_each(stacked: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """As torch's `clip_grad_norm_`, for each of C cells by itself, whose parameters are (C, ...); 0 does not clip."""
    gradients = [parameter.grad for parameter in stacked if parameter.grad is not None]
    norms = [torch.linalg.vector_norm(gradient.flatten(1), dim=1) for gradient in gradients]
    norm_C: Tensor = torch.linalg.vector_norm(torch.stack(norms), dim=0)
    if max_norm > 0:
        factor_C = (max_norm / (norm_C + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(factor_C.view(-1, *[1] * (gradient.ndim - 1)))
    return norm_C


BATCHES: Final = 8
"""Batches on which a scale is measured: the first ones of the epoch in which the objective begins."""

OBJECTIVE_GRAD: Final = "train/objective_grad"
MATCHING_GRAD: Final = "train/matching_grad"


def gradient_norm(loss_of: Callable[[Tensor, Tensor], Tensor], pairs: Pairs) -> float:
    """Frobenius norm of a loss's gradient on the unit vectors (B, D) of a batch, images and texts together."""
    embedded = [rows.detach().float().requires_grad_() for rows in (pairs.image_BD, pairs.text_BD)]
    with torch.enable_grad():
        gradients = torch.autograd.grad(loss_of(*embedded), embedded)
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])))


def scale_from(norms: Iterable[tuple[float, float]]) -> float:
    """The factor with which the objective's gradient is as large as the replaced loss's, from both norms by batch."""
    objective, replaced = (sum(column) for column in zip(*norms, strict=True))
    if not objective > 0:
        raise DivergedError("the objective has no gradient at its start; set model.xvlm.objective_scale to a number")
    return float(replaced / objective)


def ratio(metrics: Mapping[str, float]) -> dict[str, float]:
    """The mean gradient of the objective over that of matching in an epoch, by its name; empty where none is known."""
    matching = metrics.get(MATCHING_GRAD, 0.0)
    return {RATIO: metrics[OBJECTIVE_GRAD] / matching} if matching > 0 and OBJECTIVE_GRAD in metrics else {}
