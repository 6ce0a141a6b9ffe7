"""The warm-up of VSE++ and VSE-infinity: a hinge over all negatives, before hard negatives are let in."""

from __future__ import annotations

import torch
from torch import Tensor


def sum_hinge(image_BD: Tensor, text_BD: Tensor, margin: float, ids: Tensor | None = None) -> Tensor:
    """Hinge summed over all negatives and both directions.

    From random weights the hardest negatives of a batch are mostly noise, and pushing them alone can draw all
    embeddings together. The sum over all negatives has no such trap.

    Args:
        image_BD: unit vectors, (B, D); row i belongs to row i of the texts.
        text_BD: unit vectors, (B, D).
        margin: of the hinge, > 0.
        ids: integer, (B,); pairs of one id are no negatives of each other. None: no two pairs belong together.

    Returns:
        Scalar of the dtype float32.

    Source: VSE++ (Faghri et al., 2018), eq. 4; first epoch of VSE-infinity (Chen et al., 2021).
    """
    with torch.autocast(image_BD.device.type, enabled=False):
        scores_BB = image_BD.float() @ text_BD.float().T
        positive_B = scores_BB.diagonal()
        if ids is None:
            ids = torch.arange(len(scores_BB), device=scores_BB.device)
        others_BB = ids[:, None] != ids
        i2t = (margin + scores_BB - positive_B[:, None]).clamp(min=0)
        t2i = (margin + scores_BB - positive_B[None, :]).clamp(min=0)
        return ((i2t + t2i) * others_BB).sum()
