"""The similarity matrix S = X Yᵀ of a batch, read in row blocks, and its hardest negatives.

S never has to exist as a whole: a block is made, read and, in a large batch, dropped and made again when needed.

Everything here and in `relative_sets` also takes the batches of C cells at once: embeddings (C, N, D) give blocks
(C, R, N), and every result has C in front. Shapes below leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

STORED_ENTRIES: Final = 2**26
"""Largest N x N whose blocks are kept from the search for negatives until the weights are known (256 MiB in float32,
N = 8,192). Above it a weight with relative sets costs one more X Yᵀ instead of the memory."""

BLOCK_ENTRIES: Final = {"cpu": 2**21}
"""Entries of a block: on the CPU 8 MiB in float32, so that the passes over it find it in the cache (measured)."""
DEFAULT_BLOCK_ENTRIES: Final = 2**26
"""Entries of a block on accelerators, which are efficient with few, large kernel launches."""

Place = int | slice | Tensor
"""Which of C cells: one, several in a row, or indices of shape (C',), int64."""


class SimilarityBlocks:
    """Row blocks of S, with -inf wherever an entry is not a negative pair: on the diagonal and between equal ids.

    Args:
        images_ND: image embeddings, shape (N, D), float32 or float64, without gradient.
        ids_N: two pairs of the same id are not negative pairs, shape (N,); None: all ids differ.

    The first pass over the blocks fills `pos_N`, the diagonal of S, shape (N,).
    """

    def __init__(self, images_ND: Tensor, texts_ND: Tensor, ids_N: Tensor | None) -> None:
        self.num_pairs = images_ND.shape[-2]
        self.ids_N = ids_N
        self.pos_N = images_ND.new_empty(images_ND.shape[:-1])
        self.images_ND, self.texts_ND = images_ND, texts_ND
        entries = BLOCK_ENTRIES.get(images_ND.device.type, DEFAULT_BLOCK_ENTRIES)
        self._rows = max(1, entries // self.pos_N.numel())
        self._stored: list[Tensor] | None = [] if self.pos_N.numel() * self.num_pairs <= STORED_ENTRIES else None

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        """Yields (first row, block of shape (rows, N)). A block must not be written to."""
        for number, start in enumerate(range(0, self.num_pairs, self._rows)):
            if self._stored is None:
                yield start, self._make(start)
                continue
            if number == len(self._stored):
                self._stored.append(self._make(start))
            yield start, self._stored[number]

    def of(self, cells: Place) -> SimilarityBlocks:
        """The blocks of some of C cells, already searched; those that are kept are not made again."""
        chosen = SimilarityBlocks(self.images_ND[cells], self.texts_ND[cells], self.ids_N)
        chosen.pos_N = self.pos_N[cells]
        if self._stored is not None:
            chosen._rows, chosen._stored = self._rows, [block_CRN[cells] for block_CRN in self._stored]
        return chosen

    def _make(self, start: int) -> Tensor:
        rows = slice(start, start + self._rows)
        block_RN = self.images_ND[..., rows, :] @ self.texts_ND.mT
        diagonal = block_RN.diagonal(start, -2, -1)
        self.pos_N[..., rows] = diagonal
        if self.ids_N is not None:
            block_RN.masked_fill_(self.ids_N[rows, None] == self.ids_N, -torch.inf)
        diagonal.fill_(-torch.inf)
        return block_RN


def hardest_negatives(blocks: SimilarityBlocks) -> tuple[Tensor, Tensor]:
    """Search S once for the most similar negative of each image and of each text, which also fills its diagonal.

    Returns:
        Of 2N anchors (images, then texts), shape (2N,): the largest similarity, -inf if there is no negative; and which
        text or image has it, int64, the first of several equals, any index if there is none.
    """
    num_pairs, shape = blocks.num_pairs, (*blocks.pos_N.shape[:-1], 2 * blocks.num_pairs)
    # Written in place: small results that outlive their block would keep its freed memory from being used again.
    best_A = blocks.pos_N.new_full(shape, -torch.inf)
    chosen_A = torch.zeros(shape, dtype=torch.long, device=best_A.device)
    t2i_N, image_of_text_N = best_A[..., num_pairs:], chosen_A[..., num_pairs:]
    for start, block_RN in blocks:
        rows = slice(start, start + block_RN.shape[-2])
        best_A[..., rows], chosen_A[..., rows] = first_maximum(block_RN, dim=-1)
        values_N, rows_N = first_maximum(block_RN, dim=-2)
        torch.where(values_N > t2i_N, rows_N + start, image_of_text_N, out=image_of_text_N)
        torch.maximum(t2i_N, values_N, out=t2i_N)
    return best_A, chosen_A


def first_maximum(block: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Largest entries of a matrix along one dimension, and the first index of each, int64.

    As `torch.max(dim)`, but several times faster on the CPU and with a defined answer for ties on every device. The
    length along `dim`, -1 or -2, is at most 2**24, so that float32 counts it exactly.
    """
    length = block.shape[dim]
    values = block.amax(dim, keepdim=True)
    countdown = torch.arange(length, 0, -1, dtype=block.dtype, device=block.device)
    hits = torch.eq(block, values, out=torch.empty_like(block)).mul_(countdown[:, None] if dim == -2 else countdown)
    # A row with a NaN equals nothing; it keeps an index in range, and the caller's check reports it.
    indices = (length - hits.amax(dim)).clamp_(max=length - 1)
    return values.squeeze(dim), indices.long()
