"""What a batch's weights are computed from: its similarities, searched once for the hardest negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goal_core.objectives.relative_sets import BatchSets
from goal_core.objectives.similarity import HardestNegatives, Place, SimilarityBlocks, hardest_negatives


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MinedBatch:
    """The triplets of a batch; of the batches of C cells, with C in front of every shape."""

    blocks: SimilarityBlocks
    hardest: HardestNegatives
    pos: Tensor
    """s_p of the 2N anchors (images, then texts), shape (A,)."""
    neg: Tensor
    """s_n, shape (A,); 0 where there is no negative."""
    valid: Tensor
    """Whether the anchor has a negative, shape (A,), bool."""
    finite: Tensor
    """Whether all of the batch's similarities are finite, shape (), bool."""

    def sets(self) -> BatchSets:
        """The relative sets, each computed on first use."""
        return BatchSets(self.blocks, self.hardest, self.pos, self.neg)

    def sets_of(self, cells: Place) -> BatchSets:
        """Those of some of C cells, already searched."""
        return BatchSets(self.blocks, self.hardest, self.pos[cells], self.neg[cells], cells)


def mine(images_ND: Tensor, texts_ND: Tensor, ids_N: Tensor | None) -> MinedBatch:
    """Search a batch's similarities.

    Args:
        images_ND: image embeddings, shape (N, D), or (C, N, D) of C cells; float32 or float64, without gradient.
        texts_ND: text embeddings, likewise.
        ids_N: two pairs of the same id are not negative pairs, shape (N,); None: all ids differ.
    """
    blocks = SimilarityBlocks(images_ND, texts_ND, ids_N)
    hardest = hardest_negatives(blocks)
    pos_A, best_A = torch.cat((blocks.pos_N, blocks.pos_N), -1), torch.cat((hardest.i2t, hardest.t2i), -1)
    valid_A = best_A != -torch.inf
    neg_A = torch.where(valid_A, best_A, 0)
    finite = (pos_A + neg_A).isfinite().all(-1)
    return MinedBatch(blocks=blocks, hardest=hardest, pos=pos_A, neg=neg_A, valid=valid_A, finite=finite)
