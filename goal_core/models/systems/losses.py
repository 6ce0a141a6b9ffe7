"""The losses of X-VLM: the contrastive one (ITC), which the objectives replace, and image-text matching (ITM).

Negative pairs for matching are drawn from the batch, similar ones more often.

Source: ALBEF (Li et al., NeurIPS 2021), section 3.2, as X-VLM (Zeng et al., ICML 2022) uses it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

NO_NEGATIVE = -100
"""Label of a pair that is ignored, by the convention of torch's cross entropy."""
_FLOOR = 1e-5
"""Added to every probability, so that any negative can be drawn."""


def contrastive_loss(image_BD: Tensor, text_BD: Tensor, ids_B: Tensor, temperature: Tensor) -> Tensor:
    """Mean cross entropy of matching each image to its captions and each caption to its images, within the batch.

    All pairs of the same image count as right answers, with equal shares.

    Args:
        image_BD: unit vectors, (B, D); row i belongs to row i of the texts.
        text_BD: unit vectors, (B, D).
        ids_B: equal for pairs of the same image, (B,) int64.
        temperature: divides the similarities, scalar > 0.

    Returns:
        Half the sum of both directions, scalar.

    Source: X-VLM (Zeng et al., ICML 2022), section 3.2, with the targets that its code uses for retrieval.
    """
    logits_BB = image_BD @ text_BD.T / temperature
    same_BB = (ids_B[:, None] == ids_B[None, :]).to(logits_BB)
    targets_BB = same_BB / same_BB.sum(dim=1, keepdim=True)
    both = torch.stack((cross_entropy(logits_BB, targets_BB), cross_entropy(logits_BB.T, targets_BB)))
    return both.mean()


@torch.no_grad()
def draw_negatives(similarity_BB: Tensor, ids_B: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one negative for each row from the softmax of its similarities, pairs of the row's own image excluded.

    Draws from torch's global generator of the similarities' device.

    Args:
        similarity_BB: similarity of each row's query to the candidates, (B, B), any float.
        ids_B: equal for pairs of the same image, (B,) int64.
        temperature: of the softmax, scalar > 0.

    Returns:
        The candidate drawn for each row, (B,) int64; and whether the row has any negative, (B,) bool. Where it has
        none, the candidate is the row itself.
    """
    same_BB = ids_B[:, None] == ids_B[None, :]
    chances_BB = (torch.softmax(similarity_BB.float() / temperature, dim=1) + _FLOOR).masked_fill(same_BB, 0)
    any_B = ~same_BB.all(dim=1)
    chances_BB = torch.where(any_B[:, None], chances_BB, torch.eye(len(ids_B), device=ids_B.device))
    # What `multinomial` draws, without its check of the numbers, which waits for the device.
    return (chances_BB / torch.empty_like(chances_BB).exponential_()).argmax(dim=1), any_B


def matching_labels(any_image_B: Tensor, any_text_B: Tensor) -> Tensor:
    """Labels of B positive pairs, B with another image and B with another caption, (3 B,) int64: 1 match, 0 no match.

    Args:
        any_image_B: whether each caption has a negative image, (B,) bool.
        any_text_B: whether each image has a negative caption, (B,) bool.
    """
    negatives = torch.cat((any_image_B, any_text_B))
    right = torch.ones_like(any_image_B, dtype=torch.int64)
    return torch.cat((right, torch.where(negatives, 0, NO_NEGATIVE)))


class GradientNorms:
    """Squared norms of gradients, by the loss that sent them.

    A batch that is encoded in chunks has a backward pass for each, whose squares add up.
    """

    def __init__(self) -> None:
        self._squares: dict[str, Tensor] = {}

    def watch(self, loss: str, tensor: Tensor, of: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """A view of a tensor for one loss to read.

        Args:
            loss: the name under which the gradient that reaches the view is noted.
            tensor: where it has no gradient, nothing is noted.
            of: maps that gradient to the one whose norm counts; None: itself.
        """
        view = tensor.view_as(tensor)
        if view.requires_grad:
            view.register_hook(partial(self._add, loss, of))  # type: ignore[no-untyped-call]  # of torch
        return view

    def take(self) -> dict[str, Tensor]:
        """The squared norms since the last call, float32 scalars."""
        squares, self._squares = self._squares, {}
        return squares

    def _add(self, loss: str, of: Callable[[Tensor], Tensor] | None, gradient: Tensor) -> None:
        gradient = gradient.detach()
        square = (gradient if of is None else of(gradient)).float().square().sum()
        self._squares[loss] = self._squares[loss] + square if loss in self._squares else square
