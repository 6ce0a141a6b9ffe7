"""The grid of objectives as a list: names, names in the literature, and whether a loss exists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from goal_core.objectives.integrability import has_scalar_loss
from goal_core.objectives.pair_weights import pair_weights
from goal_core.objectives.triplet_weights import triplet_weights
from goal_core.objectives.variants import VARIANTS

LITERATURE: Final[Mapping[tuple[str, str], str]] = {
    ("con", "con"): "triplet loss",
    ("con", "nca"): "NT-Xent loss",
    ("lin", "cir"): "Circle loss",
    ("sig", "con"): "binomial deviance",
    ("sig-ms", "con"): "multi-similarity loss",
}
"""The paper's names (its table of combinations) by (pair, triplet); it calls the others new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveInfo:
    """One combination of a pair and a triplet weight."""

    pair: str
    triplet: str
    literature: str
    """The known loss that the paper identifies it with, or `new`. docs/objectives.md says how exactly each holds."""
    scalar_loss: Mapping[str, bool]
    """Variant to whether some loss has this gradient (relative sets held fixed), by a numerical loop test."""

    @property
    def name(self) -> str:
        """Such as `sig-ms/cir`."""
        return f"{self.pair}/{self.triplet}"


def list_objectives() -> list[ObjectiveInfo]:
    """Every combination of the registered weights, pair by pair.

    Returns:
        15 entries, more where weights have been added.
    """
    return [
        ObjectiveInfo(
            pair=pair,
            triplet=triplet,
            literature=LITERATURE.get((pair, triplet), "new"),
            scalar_loss={variant: _has_scalar_loss(pair, triplet, variant) for variant in VARIANTS},
        )
        for pair in pair_weights
        for triplet in triplet_weights
    ]


@cache
def _has_scalar_loss(pair: str, triplet: str, variant: str) -> bool:
    return has_scalar_loss(pair=pair, triplet=triplet, variant=variant)
