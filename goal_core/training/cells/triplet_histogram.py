"""A histogram of a cell's triplets over (s_p, s_n) in each epoch, for the triplet diagrams.

Recording reads numbers that the step has computed anyway; it draws no random numbers and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from goal_sweep.goal_core.checkpoints import TRIPLETS
from goal_sweep.goal_core.objectives import LOSS, ObjectiveConfig, ObjectiveStats, weights_at
from goal_sweep.goal_core.training.files import TrainingFiles

NUM_BINS: Final = 80
"""Bins along each axis, over [-1, 1]: 0.025 wide, an eighth of the usual margin."""


class TripletHistogram:
    """Counts triplets by (s_p, s_n), epoch by epoch.

    Args:
        device: where the similarities are; counting there does not synchronise.
    """

    def __init__(self, device: torch.device) -> None:
        # One bin more than the grid has, for anchors without a negative.
        self._counts = torch.zeros(NUM_BINS * NUM_BINS + 1, dtype=torch.int64, device=device)
        self._epochs = torch.empty(0, dtype=torch.int32)
        self._entries = torch.empty((0, 3), dtype=torch.int32)

    def add(self, stats: ObjectiveStats) -> None:
        """Count a batch's triplets. Similarities that rounding puts beyond [-1, 1] fall into the outermost bins."""
        self.count(self._counts, stats)

    @staticmethod
    def count(counts: Tensor, stats: ObjectiveStats) -> None:
        """Add a batch's triplets to counts; those of C cells to (C, ...), see :meth:`stack`."""
        pos_A, neg_A = (_bins(similarity) for similarity in (stats.pos, stats.neg))
        bin_A = torch.where(stats.valid, pos_A * NUM_BINS + neg_A, NUM_BINS * NUM_BINS)
        counts.scatter_add_(-1, bin_A, torch.ones_like(bin_A))

    @staticmethod
    def stack(histograms: Sequence[TripletHistogram]) -> Tensor:
        """The counts of several cells, (C, ...); each cell's own counts become a view of them."""
        counts = torch.stack([histogram._counts for histogram in histograms])
        for histogram, row in zip(histograms, counts, strict=True):
            histogram._counts = row
        return counts

    def close_epoch(self, epoch: int) -> None:
        """Assign the counts to an epoch, counted from 1, and begin the next."""
        counts = self._counts[:-1].cpu()
        bins = counts.nonzero().squeeze(1)
        rows = torch.stack((torch.full_like(bins, epoch), bins, counts[bins]), dim=1)
        self._entries = torch.cat((self._entries, rows.to(torch.int32)))
        self._epochs = torch.cat((self._epochs, torch.tensor([epoch], dtype=torch.int32)))
        self._counts.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """The state, for the checkpoint."""
        return {"counts": self._counts, "epochs": self._epochs, "entries": self._entries}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `tensors` gave."""
        self._counts = tensors["counts"].to(self._counts.device)
        self._epochs, self._entries = tensors["epochs"], tensors["entries"]

    def save(self, files: TrainingFiles, objective: ObjectiveConfig) -> None:
        """Write the file: arrays of numbers, nothing pickled.

        ``low``, ``high``, ``num_bins``: the bins of both axes; ``epochs`` (E,); ``entries`` (K, 3), one row for each
        epoch and bin that is not empty: epoch, s_p's bin x num_bins + s_n's bin, number of triplets; ``weight``
        (num_bins, num_bins): the objective's T at the bins' centres, s_p along the first axis.

        Args:
            files: of the training.
            objective: the cell's objective.
        """
        arrays: dict[str, Any] = {
            **{"low": np.float64(-1), "high": np.float64(1), "num_bins": np.int64(NUM_BINS)},
            **{"epochs": self._epochs.numpy(), "entries": self._entries.numpy()},
            "weight": weight_field(objective).numpy(),
        }

        def write(path: Path) -> None:
            with path.open("wb") as file:
                np.savez_compressed(file, **arrays)

        files.save_with(TRIPLETS, write)


def weight_field(objective: ObjectiveConfig) -> Tensor:
    """An objective's T at the centre of every bin, shape (NUM_BINS, NUM_BINS), float32, s_p along dimension 0.

    Zeros of a baseline, which has none.
    """
    if objective.triplet == LOSS:
        return torch.zeros(NUM_BINS, NUM_BINS)
    centres = (torch.arange(NUM_BINS, dtype=torch.float64) + 0.5) * (2 / NUM_BINS) - 1
    pos, neg = torch.meshgrid(centres, centres, indexing="ij")
    return weights_at(objective.build(), pos, neg).triplet.to(torch.float32)


def _bins(similarity_A: Tensor) -> Tensor:
    return ((similarity_A.detach() + 1) * (NUM_BINS / 2)).to(torch.int64).clamp_(0, NUM_BINS - 1)
