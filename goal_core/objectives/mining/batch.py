"""A batch whose similarities have been searched, once, for the hardest negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goal_sweep.goal_core.objectives.mining.relative_sets import BatchSets
from goal_sweep.goal_core.objectives.mining.similarity import Place, SimilarityBlocks, hardest_negatives
from goal_sweep.goal_core.objectives.mining.sparse_gradient import SparseGradient
from goal_sweep.goal_core.objectives.triplets import Triplets


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MinedBatch:
    """The triplets of a batch; of the batches of C cells, with C in front of every shape."""

    blocks: SimilarityBlocks
    hardest: Tensor
    """Which text or image is each anchor's hardest negative, shape (A,), int64."""
    pos: Tensor
    """s_p of the 2N anchors (images, then texts), shape (A,)."""
    neg: Tensor
    """s_n, shape (A,); 0 where there is no negative."""
    valid: Tensor
    """Whether the anchor has a negative, shape (A,), bool."""
    finite: Tensor
    """Whether all of the batch's similarities are finite, shape (), bool."""

    def triplets(self, cells: Place | None = None) -> tuple[Triplets, BatchSets]:
        """The triplets of the batch, or of some of C cells, and their relative sets, each computed on first use."""
        pos, neg = (self.pos, self.neg) if cells is None else (self.pos[cells], self.neg[cells])
        sets = BatchSets(self.blocks, self.hardest, pos, neg, cells)
        return Triplets(pos=pos, neg=neg, sets=sets), sets

    def gradient(self, triplet: Tensor, pair_pos: Tensor, pair_neg: Tensor) -> SparseGradient:
        """The gradient of weights T, P+ and P-, each of shape (A,), or (C, A)."""
        pull, push = (
            torch.where(self.valid, triplet * pair, 0).view(*self.pos.shape[:-1], 2, -1)
            for pair in (pair_pos, pair_neg)
        )
        hardest = self.hardest
        if self.pos.ndim == 2:
            hardest = hardest + torch.arange(len(self.pos), device=self.pos.device)[:, None] * self.blocks.num_pairs
        text_of_image, image_of_text = hardest.chunk(2, -1)
        return SparseGradient(
            images=self.blocks.images_ND,
            texts=self.blocks.texts_ND,
            pull=-pull.sum(-2).flatten(),
            push_i2t=push[..., 0, :].flatten(),
            push_t2i=push[..., 1, :].flatten(),
            text_of_image=text_of_image.flatten(),
            image_of_text=image_of_text.flatten(),
        )


def mine(images_ND: Tensor, texts_ND: Tensor, ids_N: Tensor | None) -> MinedBatch:
    """Search a batch's similarities, or those of C cells; arguments as for :class:`SimilarityBlocks`."""
    blocks = SimilarityBlocks(images_ND, texts_ND, ids_N)
    best_A, hardest_A = hardest_negatives(blocks)
    pos_A = torch.cat((blocks.pos_N, blocks.pos_N), -1)
    valid_A = best_A != -torch.inf
    neg_A = torch.where(valid_A, best_A, 0)
    finite = (pos_A + neg_A).isfinite().all(-1)
    return MinedBatch(blocks=blocks, hardest=hardest_A, pos=pos_A, neg=neg_A, valid=valid_A, finite=finite)
