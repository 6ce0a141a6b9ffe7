"""The grid of objectives: their names in the literature, and which of them are the gradient of some loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goal_sweep.goal_core.objectives.pair_weights import pair_weights
from goal_sweep.goal_core.objectives.triplet_weights import triplet_weights

LITERATURE: Final[Mapping[str, str]] = {
    "con/con": "triplet loss",
    "con/nca": "NT-Xent loss",
    "lin/cir": "Circle loss",
    "sig/con": "binomial deviance",
    "sig-ms/con": "multi-similarity loss",
}
"""The paper's names (its table of combinations); it calls the others new."""

_WITHOUT_GATE: Final = frozenset({"con/con", "con/nca", "lin/con", "lin/cir", "sig/con", "lin-ms/con", "sig-ms/con"})
BUILT_IN_LOSSES: Final[Mapping[str, frozenset[str]]] = {
    "paper": frozenset({"con/con", "con/nca", "lin/cir"}),
    "tables": _WITHOUT_GATE,
    "released": _WITHOUT_GATE,
}
"""Those of the 15 that are the gradient of a loss, by variant: their work around every closed loop in the plane of
(s_p, s_n) is zero, relative sets held fixed. A test measures it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveInfo:
    """One combination of a pair and a triplet weight."""

    pair: str
    triplet: str
    literature: str
    """The known loss that the paper equates it with, or `new`. docs/objectives.md says how exactly each holds."""
    scalar_loss: Mapping[str, bool]
    """For each variant, whether some loss has this gradient with relative sets held fixed."""

    @property
    def name(self) -> str:
        """Such as `sig-ms/cir`."""
        return f"{self.pair}/{self.triplet}"


def list_objectives() -> list[ObjectiveInfo]:
    """The 15 combinations, pair by pair."""
    return [
        ObjectiveInfo(
            pair=pair,
            triplet=triplet,
            literature=LITERATURE.get(f"{pair}/{triplet}", "new"),
            scalar_loss={variant: f"{pair}/{triplet}" in losses for variant, losses in BUILT_IN_LOSSES.items()},
        )
        for pair in pair_weights.shipped
        for triplet in triplet_weights.shipped
    ]
