"""The similarity matrix S = X Yᵀ of a batch, read in row blocks, and its hardest negatives.

S never has to exist as a whole: a block is made, read and, in a large batch, dropped and made again when needed.

Everything here and in `relative_sets` also takes the batches of C cells at once: embeddings (C, N, D) give blocks
(C, R, N), and every result has C in front. Shapes below leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
        texts_ND: text embeddings, likewise.
        ids_N: two pairs of the same id are not negative pairs, shape (N,); None: all ids differ.

    Attributes:
        pos_N: the diagonal of S, shape (N,); filled by the first pass over the blocks.
    """

    def __init__(self, images_ND: Tensor, texts_ND: Tensor, ids_N: Tensor | None) -> None:
        self.num_pairs = images_ND.shape[-2]
        self.ids_N = ids_N
        self.pos_N = images_ND.new_empty(images_ND.shape[:-1])
        self._images_ND, self._texts_DN = images_ND, texts_ND.mT
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
        """The blocks of some of C cells, already searched; those that are kept are not made again.

        Args:
            cells: one number, a slice, or indices of shape (C',), int64.
        """
        if self._stored is None:
            chosen = SimilarityBlocks(self._images_ND[cells], self._texts_DN[cells].mT, self.ids_N)
            chosen.pos_N = self.pos_N[cells]
            return chosen
        return _KeptBlocks(self, cells)

    def _make(self, start: int) -> Tensor:
        rows = slice(start, start + self._rows)
        block_RN = self._images_ND[..., rows, :] @ self._texts_DN
        diagonal = block_RN.diagonal(start, -2, -1)
        self.pos_N[..., rows] = diagonal
        if self.ids_N is not None:
            block_RN.masked_fill_(self.ids_N[rows, None] == self.ids_N, -torch.inf)
        diagonal.fill_(-torch.inf)
        return block_RN


class _KeptBlocks(SimilarityBlocks):
    """Blocks of some cells, read from those of all."""

    def __init__(self, every: SimilarityBlocks, cells: Place) -> None:
        self.num_pairs, self.ids_N, self.pos_N = every.num_pairs, every.ids_N, every.pos_N[cells]
        self._every, self._cells = every, cells

    def __iter__(self) -> Iterator[tuple[int, Tensor]]:
        for start, block_CRN in self._every:
            yield start, block_CRN[self._cells]


@dataclass(frozen=True, slots=True, kw_only=True)
class HardestNegatives:
    """The most similar negative of each image and of each text."""

    i2t: Tensor
    """Largest S[i, j] over the negatives j of image i, shape (N,); -inf if there is none."""
    t2i: Tensor
    """Largest S[k, i] over the negatives k of text i, shape (N,); -inf if there is none."""
    text_of_image: Tensor
    """Its text j, shape (N,), int64; the first of several equals; any index if there is none."""
    image_of_text: Tensor
    """Its image k, likewise."""

    def of(self, cells: Place) -> HardestNegatives:
        """Those of some of C cells."""
        return HardestNegatives(
            i2t=self.i2t[cells],
            t2i=self.t2i[cells],
            text_of_image=self.text_of_image[cells],
            image_of_text=self.image_of_text[cells],
        )


def hardest_negatives(blocks: SimilarityBlocks) -> HardestNegatives:
    """Search S once for both directions.

    Args:
        blocks: the similarity matrix; its `pos_N` is filled when this returns.

    Returns:
        Values and indices, the first index where values are equal.
    """
    # Written in place: small results that outlive their block would keep its freed memory from being used again.
    i2t_N = torch.empty_like(blocks.pos_N)
    t2i_N = torch.full_like(i2t_N, -torch.inf)
    text_of_image_N, image_of_text_N = torch.zeros(2, *i2t_N.shape, dtype=torch.long, device=i2t_N.device)
    for start, block_RN in blocks:
        rows = slice(start, start + block_RN.shape[-2])
        i2t_N[..., rows], text_of_image_N[..., rows] = first_maximum(block_RN, dim=-1)
        values_N, rows_N = first_maximum(block_RN, dim=-2)
        torch.where(values_N > t2i_N, rows_N + start, image_of_text_N, out=image_of_text_N)
        torch.maximum(t2i_N, values_N, out=t2i_N)
    return HardestNegatives(i2t=i2t_N, t2i=t2i_N, text_of_image=text_of_image_N, image_of_text=image_of_text_N)


def first_maximum(block: Tensor, *, dim: int) -> tuple[Tensor, Tensor]:
    """Largest entries of a matrix along one dimension, and the first index of each.

    As `torch.max(dim)`, but several times faster on the CPU and with a defined answer for ties on every device.

    Args:
        block: matrix of floats, or several; a length up to 2**24 along `dim`, so that float32 counts it exactly.
        dim: -1 for the maximum of each row, -2 for that of each column.

    Returns:
        Values and int64 indices.
    """
    length = block.shape[dim]
    values = block.amax(dim, keepdim=True)
    countdown = torch.arange(length, 0, -1, dtype=block.dtype, device=block.device)
    hits = torch.eq(block, values, out=torch.empty_like(block)).mul_(countdown[:, None] if dim == -2 else countdown)
    # A row with a NaN equals nothing; it keeps an index in range, and the caller's check reports it.
    indices = (length - hits.amax(dim)).clamp_(max=length - 1)
    return values.squeeze(dim), indices.long()
