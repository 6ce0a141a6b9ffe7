"""The state of one training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from runners.store import State
from sweeps import Training

Objective = tuple[str, str]
"""A pair weight and a triplet weight."""
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")


@dataclass(slots=True)
class Standing:
    """The state of one training."""

    training: Training
    state: State = "waiting"
    epoch: int = 0
    """Epochs done, those included that it continues; of one that waits, those whose state is saved."""
    val_rsum: float = math.nan
    """val/rsum of the last epoch; NaN before the first."""
    best_rsum: float = math.nan
    """Highest val/rsum of an epoch so far, which selects the weights; NaN before the first."""
    test: Mapping[str, float] = field(default_factory=dict)
    """Final metrics; empty until the training is done."""
    reason: str = ""
    """Why it failed, or what is damaged."""
    damaged: bool = False
    """Whether it has a result whose files are damaged, so that it must be trained again."""
    imported: str = ""
    """The archive that the result came from; empty if it was trained here."""

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""
        return self.training.epochs

    @property
    def left(self) -> int:
        """Epochs still to do: none once it is done or has failed."""
        return self.epochs - self.epoch if self.state in ("waiting", "running") else 0

    @property
    def begun(self) -> bool:
        """Whether it waits with epochs saved, from which it continues."""
        return self.state == "waiting" and self.epoch > 0
