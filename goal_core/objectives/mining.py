"""A batch's similarities, searched for what its weights are computed from: hardest negatives and relative sets.

The similarity matrix S = X Yᵀ never has to exist as a whole: a row block is made, read and, in a large batch, dropped
and made again when needed. The set P holds the diagonals S[k, k] of *other* pairs below s_n + eps. They are the same N
numbers for every anchor, so one sort and one running sum answer all 2N anchors. N holds the anchor's other negatives
above min_k S[k, k] - eps, without the selected one; both directions read each block of S once.

Everything here also takes the batches of C cells at once: embeddings (C, N, D) give blocks (C, R, N), and every result
has C in front. Shapes below leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from goal_sweep.goal_core.objectives.sparse_gradient import SparseGradient
from goal_sweep.goal_core.objectives.weights import RelativeSet, Triplets

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
        self._rows = max(1, BLOCK_ENTRIES.get(images_ND.device.type, DEFAULT_BLOCK_ENTRIES) // self.pos_N.numel())
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
    return values.squeeze(dim), (length - hits.amax(dim)).clamp_(max=length - 1).long()


class BatchSets:
    """The relative similarities of one batch of 2N anchors, each set computed on first use."""

    def __init__(
        self, blocks: SimilarityBlocks, hardest_A: Tensor, pos_A: Tensor, neg_A: Tensor, cells: Place | None = None
    ) -> None:
        self._blocks, self._hardest_A, self._pos_A, self._neg_A, self._cells = blocks, hardest_A, pos_A, neg_A, cells
        self._made: dict[tuple[str, float, bool], RelativeSet] = {}

    def positives(self, *, eps: float, strict: bool) -> RelativeSet:
        key = ("pos_set", eps, strict)
        if key not in self._made:
            given, ids_N = (self._pos_A, self._neg_A + eps, strict), self._blocks.ids_N
            self._made[key] = PositiveSet(*given) if ids_N is None else MaskedPositiveSet(*given, ids_N)
        return self._made[key]

    def negatives(self, *, eps: float, strict: bool) -> RelativeSet:
        key = ("neg_set", eps, strict)
        if key not in self._made:
            blocks, hardest_A = self._blocks, self._hardest_A
            if self._cells is not None:
                blocks, hardest_A = blocks.of(self._cells), hardest_A[self._cells]
            self._made[key] = NegativeSet(blocks, hardest_A, self._neg_A, blocks.pos_N.amin(-1) - eps, strict)
        return self._made[key]

    def sizes(self) -> dict[str, Tensor]:
        """Members per anchor of the sets that have been used: `pos_set` and `neg_set`, each of shape (2N,)."""
        return {name: members.size for (name, _, _), members in self._made.items()}


class PositiveSet:
    """P without ids: everything below a threshold in the sorted diagonal, less the anchor's own pair.

    The running sums are float64 and never hold a pair that is taken out again later: an own pair whose term outweighs
    the others by e^37 would leave nothing of them.
    """

    def __init__(self, pos_A: Tensor, limit_A: Tensor, strict: bool) -> None:
        self._pos_A = pos_A
        self._sorted_N = pos_A[..., : pos_A.shape[-1] // 2].sort().values
        self._below_A = torch.searchsorted(self._sorted_N, limit_A, right=not strict)
        self._own_A = (pos_A < limit_A if strict else pos_A <= limit_A).long()
        self._place_A = torch.minimum(torch.searchsorted(self._sorted_N, pos_A), self._below_A)

    @property
    def size(self) -> Tensor:
        return (self._below_A - self._own_A).to(self._pos_A)

    def mean_gap(self, *, empty: float, count_ties: bool = True) -> Tensor:
        size_A = self._below_A - self._own_A
        total_A = size_A * self._pos_A.double() - self._sum_of_others(self._sorted_N.double(), rising=True)
        counted_A = size_A if count_ties else size_A - self._ties()
        return mean_or(total_A, counted_A, empty).to(self._pos_A)

    def mean_exp_gap(self, rate: float, *, empty: float) -> Tensor:
        """Mean of exp(rate (s_p - R)) = exp(rate s_p) mean(exp(-rate R))."""
        exponent_N = -rate * self._sorted_N.double()
        peak = exponent_N.amax(-1, keepdim=True)
        own_A = (-rate * self._pos_A.double() - peak).exp()
        others_A = self._sum_of_others((exponent_N - peak).exp(), rising=rate < 0)
        return mean_or(others_A / own_A, self._below_A - self._own_A, empty).to(self._pos_A)

    def _sum_of_others(self, values_N: Tensor, *, rising: bool) -> Tensor:
        """Sum over the members of values in the order of the sorted diagonal, which rise or fall along it.

        Those before the own pair are one running sum. Those after it are a difference of two, taken from the end where
        the values are small, so that what is subtracted is at most N times what is left.
        """
        before_N1 = torch.nn.functional.pad(values_N.cumsum(-1), (1, 0))
        after_N1 = before_N1
        if not rising:
            after_N1 = -torch.nn.functional.pad(values_N.flip(-1).cumsum(-1), (1, 0)).flip(-1)
        after_A = after_N1.gather(-1, self._below_A) - after_N1.gather(-1, self._place_A + self._own_A)
        return before_N1.gather(-1, self._place_A) + after_A

    def _ties(self) -> Tensor:
        after_A = torch.searchsorted(self._sorted_N, self._pos_A, right=True)
        return torch.minimum(after_A, self._below_A) - self._place_A - self._own_A


class SummedSet:
    """A relative set whose means are sums over its members, each of which is asked for when it is needed."""

    _size: Tensor | None = None

    @property
    def size(self) -> Tensor:
        if self._size is None:
            self._size = self._sum(torch.ones_like)
        return self._size

    def mean_gap(self, *, empty: float, count_ties: bool = True) -> Tensor:
        total_A = self._sum(lambda gap: gap)
        counted_A = self.size if count_ties else self._sum(lambda gap: torch.ne(gap, 0, out=gap))
        return mean_or(total_A, counted_A, empty)

    def mean_exp_gap(self, rate: float, *, empty: float) -> Tensor:
        return mean_or(self._sum(lambda gap: gap.mul_(rate).exp_()), self.size, empty)

    def _sum(self, transform: Callable[[Tensor], Tensor]) -> Tensor:
        """Sum of a function of the gap over the members, shape (A,). It may write to the gaps that it gets."""
        raise NotImplementedError


def mean_or(total: Tensor, count: Tensor, empty: float) -> Tensor:
    """``total / count``, or ``empty`` where ``count`` is 0; never a division by zero. All of one shape."""
    return (total / count.clamp(min=1)).masked_fill_(count == 0, empty)


class MaskedPositiveSet(SummedSet):
    """P with ids: pairs of the anchor's id are out, so each anchor has its own list; read in blocks of anchors."""

    def __init__(self, pos_A: Tensor, limit_A: Tensor, strict: bool, ids_N: Tensor) -> None:
        self._pos_A, self._limit_A, self._strict, self._ids_N = pos_A, limit_A, strict, ids_N

    def _sum(self, transform: Callable[[Tensor], Tensor]) -> Tensor:
        num_pairs = len(self._ids_N)
        pos_1N, ids_A = self._pos_A[..., None, :num_pairs], self._ids_N.repeat(2)
        sums = []
        step = max(1, 2**22 // pos_1N.numel())
        for start in range(0, 2 * num_pairs, step):
            rows = slice(start, start + step)
            limit_R1 = self._limit_A[..., rows, None]
            member_RN = (pos_1N < limit_R1) if self._strict else (pos_1N <= limit_R1)
            member_RN &= ids_A[rows, None] != self._ids_N
            sums.append(torch.where(member_RN, transform(self._pos_A[..., rows, None] - pos_1N), 0).sum(-1))
        return torch.cat(sums, -1)


class NegativeSet(SummedSet):
    """N: the entries of S above one threshold for the whole batch, less each anchor's selected negative."""

    def __init__(self, blocks: SimilarityBlocks, hardest_A: Tensor, neg_A: Tensor, limit: Tensor, strict: bool) -> None:
        self._blocks, self._hardest_A, self._neg_A, self._limit, self._strict = blocks, hardest_A, neg_A, limit, strict

    def _sum(self, transform: Callable[[Tensor], Tensor]) -> Tensor:
        # Counts the members on the way, the first time.
        total_A, size_A = torch.zeros_like(self._neg_A), torch.zeros_like(self._neg_A)
        compare = torch.gt if self._strict else torch.ge
        limit = self._limit[..., None, None]
        for start, block_RN in self._blocks:
            # Zeros and ones as floats: multiplying by them is several times faster than a masked fill.
            member_RN = compare(block_RN, limit, out=torch.empty_like(block_RN))
            # Turns the -inf of non-negatives into something finite; no member is below the limit.
            floored_RN = torch.maximum(block_RN, limit)
            for dim, anchors, selected, here in self._directions(start, block_RN.shape[-2]):
                kept = member_RN.gather(dim, selected)
                if here is None:
                    member_RN.scatter_(dim, selected, 0.0)
                else:
                    member_RN.scatter_(dim, selected, torch.where(here, 0, kept))
                gap_RN = self._neg_A[..., anchors].unsqueeze(dim) - floored_RN
                total_A[..., anchors].add_(transform(gap_RN).mul_(member_RN).sum(dim))
                if self._size is None:
                    size_A[..., anchors].add_(member_RN.sum(dim))
                member_RN.scatter_(dim, selected, kept)
        if self._size is None:
            self._size = size_A
        return total_A

    def _directions(self, start: int, num_rows: int) -> Iterator[tuple[int, slice, Tensor, Tensor | None]]:
        """For images, then texts: dimension, anchors, their negatives' index, and is it in the block (None: all)."""
        rows = slice(start, start + num_rows)
        yield -1, rows, self._hardest_A[..., rows, None], None
        row_1N = self._hardest_A[..., None, self._blocks.num_pairs :]
        if num_rows == self._blocks.num_pairs:
            yield -2, slice(num_rows, None), row_1N, None
            return
        row_1N = row_1N - start
        here_1N = (row_1N >= 0) & (row_1N < num_rows)
        yield -2, slice(self._blocks.num_pairs, None), row_1N.clamp(0, num_rows - 1), here_1N


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
