"""The contrastive loss of X-VLM (ITC), which the objectives replace there and whose size they get."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


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
