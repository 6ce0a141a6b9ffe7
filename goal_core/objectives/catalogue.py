"""The grid of objectives: their names in the literature, and which of them are the gradient of some loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from goal_sweep.goal_core.objectives.pair_weights import pair_weights
from goal_sweep.goal_core.objectives.triplet_weights import triplet_weights
from goal_sweep.goal_core.objectives.variants import VARIANTS

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
"""Those of the 15 that are the gradient of a loss, by variant, as `pointwise.circulation` measures it.
They are recorded so that listing them needs no arithmetic. A test measures them again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveInfo:
    """One combination of a pair and a triplet weight."""

    pair: str
    triplet: str
    literature: str
    """The known loss that the paper equates it with, or `new`. docs/objectives.md says how exactly each holds."""
    scalar_loss: Mapping[str, bool]
    """For each variant, whether some loss has this gradient with relative sets held fixed (a numerical test)."""

    @property
    def name(self) -> str:
        """Such as `sig-ms/cir`."""
        return f"{self.pair}/{self.triplet}"


def list_objectives() -> list[ObjectiveInfo]:
    """Every combination of the registered weights, pair by pair: 15, or more where weights have been added."""
    return [
        ObjectiveInfo(
            pair=pair,
            triplet=triplet,
            literature=LITERATURE.get(f"{pair}/{triplet}", "new"),
            scalar_loss={variant: _has_scalar_loss(pair, triplet, variant) for variant in VARIANTS},
        )
        for pair in pair_weights
        for triplet in triplet_weights
    ]


def _has_scalar_loss(pair: str, triplet: str, variant: str) -> bool:
    if pair_weights[pair].is_built_in and triplet_weights[triplet].is_built_in:
        return f"{pair}/{triplet}" in BUILT_IN_LOSSES[variant]
    # With torch, which the 15 do without.
    from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective
    from goal_sweep.goal_core.objectives.pointwise import has_scalar_loss

    return has_scalar_loss(GradientObjective(pair=pair, triplet=triplet, variant=variant))
