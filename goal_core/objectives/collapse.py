"""Tells when training has collapsed: every embedding the same, every triplet exactly at the margin."""

from __future__ import annotations

from typing import Final

TOLERANCE: Final = 0.01
"""A hinge within this share of its collapsed value counts as collapsed."""


def at_margin(hinge: float, num_triplets: float, margin: float) -> bool:
    """Whether a batch's hinge is that of embeddings that all coincide (s_p = s_n for every triplet).

    Args:
        hinge: sum over the batch and both directions of max(0, margin + s_n - s_p).
        num_triplets: how many triplets were summed; 2 x batch size unless pairs are masked.
        margin: the hinge's margin, > 0.

    Returns:
        Whether the hinge is within 1 % of ``num_triplets * margin``; False without triplets.
    """
    collapsed = num_triplets * margin
    return collapsed > 0 and abs(hinge - collapsed) <= TOLERANCE * collapsed


class CollapseDetector:
    """Counts steps in a row whose hinge is that of collapsed embeddings.

    Args:
        margin: the hinge's margin, > 0 (`GradientObjective.margin`).
        patience: steps in a row after which training counts as collapsed; 0 never.

    Attributes:
        num_steps: collapsed steps in a row so far; set it to resume a run.
    """

    def __init__(self, *, margin: float, patience: int) -> None:
        self.margin, self.patience = margin, patience
        self.num_steps = 0

    def update(self, hinge: float, num_triplets: float) -> bool:
        """Take in one step.

        Args:
            hinge: the step's hinge (`ObjectiveStats.as_dict()["hinge"]`, or the objective's value).
            num_triplets: the step's triplets; 2 x batch size unless pairs are masked.

        Returns:
            Whether training has now been collapsed for `patience` steps.
        """
        self.num_steps = self.num_steps + 1 if at_margin(hinge, num_triplets, self.margin) else 0
        return 0 < self.patience <= self.num_steps
