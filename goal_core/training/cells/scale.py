"""The scale of an objective beside a loss of the framework's own: measured once, with the weights it begins with.

The objectives' gradients differ in size by orders of magnitude, so that no factor serves all of them: beside
image-text matching some would train the backbones, and others would leave that to the matching alone. Each is
multiplied by what gives its gradient on the embeddings the size that the gradient of the replaced loss has there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.errors import DivergedError
from goal_sweep.goal_core.models.heads import Pairs
from goal_sweep.goal_core.training.diagnostics import RATIO

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
