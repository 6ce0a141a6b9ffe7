"""Contrastive losses beside the grid: what pretrained two-tower models were trained with, as named baselines.

A baseline is written `infonce/loss`. Its gradient is autograd's, of a sum over the batch, as the objectives' is a sum.
Its temperature is a number, or `model`: that of the towers of `dual`, which trains as they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.objectives.arguments import FROM_MODEL

if TYPE_CHECKING:
    from torch import Tensor

LOSS: Final = "loss"
"""Stands in the place of a triplet weight in the name of a baseline."""
Temperature = Annotated[float, Range(above=0), FROM_MODEL]
Bias = Annotated[float, FROM_MODEL]
LARGEST_SCALE: Final = {"infonce": 100.0}
"""Of a model's 1 / temperature, by baseline, in training as at its start: CLIP has this limit, SigLIP has none."""

baselines: Registry[Callable[..., Tensor]] = Registry("baseline")
"""Losses of a batch's similarities, (N, N), and of which of them do not count, by name."""


@baselines.register("infonce", source="CLIP (Radford et al. 2021, arXiv:2103.00020), figure 3; Oord et al. 2018")
def infonce(scores_NN: Tensor, excluded_NN: Tensor | None, *, temperature: Temperature = 0.07) -> Tensor:
    """Cross entropy of finding each image's text among the batch's, and each text's image.

    Args:
        scores_NN: similarities of N images and N texts; row i belongs to column i.
        excluded_NN: pairs that are neither positive nor negative, bool; None: none.
        temperature: divides the similarities, > 0; CLIP's trains, from 0.07 to 0.01.

    Returns:
        The sum over both directions, shape ().
    """
    logits_NN = scores_NN / temperature
    if excluded_NN is not None:
        logits_NN = logits_NN.masked_fill(excluded_NN, float("-inf"))
    return logits_NN.logsumexp(0).sum() + logits_NN.logsumexp(1).sum() - 2 * logits_NN.diagonal().sum()


@baselines.register("sigmoid", source="SigLIP (Zhai et al. 2023, arXiv:2303.15343), eq. 1")
def sigmoid(
    scores_NN: Tensor, excluded_NN: Tensor | None, *, temperature: Temperature = 0.1, bias: Bias = -10.0
) -> Tensor:
    """Binary cross entropy of telling for each pair of the batch whether it belongs together.

    Args:
        scores_NN: as for :func:`infonce`, as is ``excluded_NN``.
        temperature: divides the similarities, > 0; SigLIP's trains from 0.1, and so does its bias from -10.

    Returns:
        The sum over all pairs, shape ().
    """
    logits_NN = scores_NN / temperature + bias
    losses_NN = logits_NN.logaddexp(logits_NN.new_zeros(()))
    if excluded_NN is not None:
        losses_NN = losses_NN.masked_fill(excluded_NN, 0)
    return losses_NN.sum() - logits_NN.diagonal().sum()
