"""The objective settings of a sweep file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from goal_sweep.goal_core.objectives.variants import LOSS, Variant, entries_of, objective_name, resolve_parameters
from goal_sweep.goal_core.objectives.weights import FROM_MODEL, Value, baselines, parameter_problem

if TYPE_CHECKING:
    from torch import Tensor

    from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveConfig:
    """One objective of the grid: a pair weight, a triplet weight and their parameters; or a baseline beside it."""

    pair: str
    """Pair weight: `con`, `lin`, `sig`, `lin-ms`, `sig-ms` or one of your own; or a baseline: `infonce`, `sigmoid`."""
    triplet: str
    """Triplet weight: `con`, `nca`, `cir` or one of your own; `loss` of a baseline."""
    variant: Variant = "paper"
    """Where the defaults come from: the `paper`, or the authors' `released` code where it differs."""
    params: dict[str, Value] = field(default_factory=dict)
    """Parameters that differ from the variant's, such as `tau: 20`. The paper's lambda is called `lam`."""

    def __post_init__(self) -> None:
        """Check the names against the registries and the parameters against their ranges."""
        resolve_parameters(self.pair, self.triplet, self.variant, self.params)

    def __hash__(self) -> int:
        """Hash of the fields; the generated hash fails on the dictionary among them."""
        return hash((self.pair, self.triplet, self.variant, tuple(sorted(self.params.items()))))

    @property
    def name(self) -> str:
        """The name in tables and logs, such as `sig-ms/cir`, or `infonce` of a baseline."""
        return objective_name(self.pair, self.triplet)

    def resolved(self) -> dict[str, Value]:
        """Everything that decides the gradient: both names and all parameters, defaults filled in.

        The variant is left out, for it acts only through the parameters. A weight that does not come with goal-sweep,
        or was edited, has the hash of its file as ``pair_code`` or ``triplet_code``. So equal dictionaries train equal
        models.
        """
        values = resolve_parameters(self.pair, self.triplet, self.variant, self.params)
        kinds = ("pair_code",) if self.triplet == LOSS else ("triplet_code", "pair_code")
        codes = zip(kinds, entries_of(self.pair, self.triplet), strict=True)
        own = {kind: entry.code for kind, entry in codes if entry.code}
        return {"pair": self.pair, "triplet": self.triplet, **values, **own}

    def of_model(self) -> ObjectiveConfig:
        """The same with the model's own value for each parameter that can have it, unless one is given."""
        if self.triplet != LOSS:
            return self
        loss = baselines[self.pair]
        own = [name for name in loss.parameters if not parameter_problem(loss.function, name, FROM_MODEL)]
        return replace(self, params={**dict.fromkeys(own, FROM_MODEL), **self.params})

    def build(self, *, check_finite: bool = True, own: Mapping[str, Tensor] | None = None) -> GradientObjective:
        """The objective as a callable on embeddings; see :class:`GradientObjective`."""
        # With torch, which settings do without.
        from goal_sweep.goal_core.objectives.gradient_objective import GradientObjective, LossObjective

        if self.triplet == LOSS:
            return LossObjective(self.pair, check_finite=check_finite, own=own or {}, **self.params)
        return GradientObjective(
            pair=self.pair, triplet=self.triplet, variant=self.variant, check_finite=check_finite, **self.params
        )
