"""Size augmentation of VSE-infinity: regions and words that are left out in training.

Every random draw belongs to one (seed, epoch, caption), so all cells see the same augmented pairs, also after a resume.

Source: VSE-infinity (Chen et al., CVPR 2021), section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from goal_sweep.goal_core.basics.seeding import derive_seed
from goal_sweep.goal_core.data.text.wordpieces import Wordpieces

MASKED, REPLACED = 0.5, 0.6
"""Of the words drawn, half are masked and a tenth replaced; the others are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAugment:
    """Augments image-caption pairs of precomputed regions and word pieces; a `goal_core.data.batches.Augment`."""

    rate: float
    """Share of regions and of words that are drawn, in [0, 1)."""
    wordpieces: Wordpieces
    seed: int
    """The cells' seed."""

    def keep_regions(self, epoch: int, caption: int, num_regions: int) -> NDArray[np.bool_]:
        """Which of an image's regions a pair keeps, (num_regions,) bool; at least one."""
        draws = _uniform(num_regions, self.seed, "regions", epoch, caption)
        kept = draws >= self.rate
        if not kept.any():
            kept[np.argmax(draws)] = True
        return kept

    def caption_ids(self, epoch: int, caption: int, words: Sequence[Sequence[int]]) -> list[int]:
        """Ids of an augmented caption, whose words are given as pieces; `[CLS]` and `[SEP]` included."""
        draws = _uniform(2 * len(words), self.seed, "words", epoch, caption)
        fresh = iter(_uniform(sum(map(len, words)), self.seed, "pieces", epoch, caption))
        ids: list[int] = []
        for word, drawn, kind in zip(words, draws[: len(words)], draws[len(words) :], strict=True):
            if drawn >= self.rate:
                ids += word
            elif kind < MASKED:
                ids += [self.wordpieces.mask_id] * len(word)
            elif kind < REPLACED:
                ids += [int(next(fresh) * len(self.wordpieces)) for _ in word]
        return self.wordpieces.wrap(ids)

    def captions(
        self, epoch: int, captions: NDArray[np.int64], ids_of: Callable[[int], list[int]]
    ) -> tuple[Tensor, Tensor]:
        """Augmented captions of a batch: ids (B, L) int64, padded with 0, and their lengths (B,) int64."""
        words = ((caption, self.wordpieces.words(ids_of(caption))) for caption in captions.tolist())
        rows = [torch.tensor(self.caption_ids(epoch, caption, own)) for caption, own in words]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    def regions(
        self, epoch: int, captions: NDArray[np.int64], regions_BRF: NDArray[np.float32]
    ) -> tuple[Tensor, Tensor]:
        """Kept regions of a batch, moved to the front, padded with zeros (B, R', F), and how many each keeps (B,)."""
        masks = (self.keep_regions(epoch, caption, regions_BRF.shape[1]) for caption in captions.tolist())
        kept = [torch.from_numpy(regions[mask]) for regions, mask in zip(regions_BRF, masks, strict=True)]
        return pad_sequence(kept, batch_first=True), torch.tensor([len(regions) for regions in kept])


def _uniform(count: int, seed: int, *purpose: object) -> NDArray[np.float64]:
    """Uniform doubles in [0, 1), which numpy keeps the same from version to version."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *purpose))).random(count)
