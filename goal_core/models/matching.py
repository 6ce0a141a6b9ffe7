"""Image-text matching: does this caption belong to this image? Negatives are drawn from the batch, the near ones most.

Source: ALBEF (Li et al., NeurIPS 2021), section 3.2, as X-VLM (Zeng et al., ICML 2022) uses it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

NO_NEGATIVE = -100
"""Label of a pair that does not count, as torch's cross entropy has it."""
_FLOOR = 1e-5
"""Added to each chance, so that no negative is out of reach."""


@torch.no_grad()
def draw_negatives(similarity_BB: Tensor, ids_B: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one negative for each row, by the softmax of the row's similarities without those of the row's own image.

    Draws from torch's global generator of the similarities' device.

    Args:
        similarity_BB: of each row's query to the candidates, (B, B), any float.
        ids_B: equal for pairs of the same image, (B,) int64.
        temperature: of the softmax, scalar > 0.

    Returns:
        The candidate drawn for each row, (B,) int64; and whether the row has any negative, (B,) bool. Where it has none
        the candidate is the row itself.
    """
    same_BB = ids_B[:, None] == ids_B[None, :]
    chances_BB = (torch.softmax(similarity_BB.float() / temperature, dim=1) + _FLOOR).masked_fill(same_BB, 0)
    any_B = ~same_BB.all(dim=1)
    chances_BB = torch.where(any_B[:, None], chances_BB, torch.eye(len(ids_B), device=ids_B.device))
    return torch.multinomial(chances_BB, 1)[:, 0], any_B


def matching_labels(any_image_B: Tensor, any_text_B: Tensor) -> Tensor:
    """Labels of B right pairs, then B with another image, then B with another caption, (3 B,) int64: 1 match, 0 none.

    Args:
        any_image_B: whether a caption has an image to be told from, (B,) bool.
        any_text_B: whether an image has a caption to be told from, (B,) bool.
    """
    negatives = torch.cat((any_image_B, any_text_B))
    right = torch.ones_like(any_image_B, dtype=torch.int64)
    return torch.cat((right, torch.where(negatives, 0, NO_NEGATIVE)))


def matching_loss(logits_N2: Tensor, labels_N: Tensor) -> Tensor:
    """Mean cross entropy over the pairs that count, scalar."""
    return cross_entropy(logits_N2.float(), labels_N, ignore_index=NO_NEGATIVE)
