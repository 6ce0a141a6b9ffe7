"""The grid of objectives, and the parameters that each combination gets from a variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from goal_sweep.goal_core.basics.errors import ConfigError, nearest
from goal_sweep.goal_core.basics.registry import Entry
from goal_sweep.goal_core.objectives.weights import Value, baselines, pair_weights, parameter_problem, triplet_weights

LOSS: Final = "loss"
"""In place of a triplet weight: a contrastive loss beside the grid, a baseline."""
Variant = Literal["paper", "tables", "released"]
Overrides = Mapping[str, Mapping[str, Value]]

_RELEASED_SETS: Final[Overrides] = {
    "lin-ms": {"strict": False, "count_ties": False},
    "sig-ms": {"strict": False, "empty": "zero"},
}

VARIANTS: Final[Mapping[str, tuple[Overrides, Overrides]]] = {
    "paper": ({}, {}),
    "tables": ({"con": {"gate": False}, "nca": {"tau": 1.0}, "cir": {"tau": 1.0}}, _RELEASED_SETS),
    "released": ({"con": {"gate": False}, "cir": {"cir_shift": 0.5}}, _RELEASED_SETS),
}
"""What a variant changes in the defaults of (triplet weights, pair weights).

- `paper` changes nothing: it is the printed text.
- `released` is what github.com/microsoft/VSE_Gradient (commit 3db6c6d) computes once its syntax errors are mended, with
  the tau of its functions.
- `tables` is `released` with the tau of its class and the T^cir of the text. Of the readings of text and code that an
  experiment could not reject as those of the paper's tables it is the nearest to the text (docs/objectives.md).
"""


def objective_name(pair: str, triplet: str) -> str:
    """An objective for a reader: ``con/nca``, or ``infonce`` of a baseline."""
    return pair if triplet == LOSS else f"{pair}/{triplet}"


def entries_of(pair: str, triplet: str) -> tuple[Entry[Any], ...]:
    """What is registered under the names of an objective: a triplet and a pair weight, or a baseline alone."""
    return (baselines[pair],) if triplet == LOSS else (triplet_weights[triplet], pair_weights[pair])


def accepted_parameters(pair: str, triplet: str, variant: str = "paper") -> dict[str, Value]:
    """The parameters of one combination with the variant's values; a name that both weights take is one parameter."""
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}{nearest(variant, VARIANTS)}; known: {', '.join(VARIANTS)}")
    if triplet == LOSS:
        return dict(baselines[pair].parameters)
    for_triplet, for_pair = VARIANTS[variant]
    of_triplet = {**triplet_weights[triplet].parameters, **for_triplet.get(triplet, {})}
    of_pair = {**pair_weights[pair].parameters, **for_pair.get(pair, {})}
    if clashes := sorted(name for name in of_triplet.keys() & of_pair.keys() if of_triplet[name] != of_pair[name]):
        raise ConfigError(f"{pair}/{triplet}: the weights have different defaults for {', '.join(clashes)}; rename one")
    return {**of_triplet, **of_pair}


def resolve_parameters(pair: str, triplet: str, variant: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of one combination, numbers as floats: the variant's values, replaced by the given ones.

    A `ConfigError` lists all unknown parameters and values out of range.
    """
    values = accepted_parameters(pair, triplet, variant)
    problems = []
    for name, value in given.items():
        if name not in values:
            known, what = ", ".join(values) or "none", objective_name(pair, triplet)
            problems.append(f"{what} has no parameter {name!r}{nearest(name, values)}; it has: {known}")
            continue
        owner = next(entry for entry in entries_of(pair, triplet) if name in entry.parameters)
        if problem := parameter_problem(owner.function, name, value):
            problems.append(problem)
    if problems:
        raise ConfigError(*problems)
    merged = {**values, **given}
    return {
        name: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in merged.items()
    }


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
"""Those of the 15 that are the gradient of a loss, by variant, relative sets held fixed. A test measures it."""


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
