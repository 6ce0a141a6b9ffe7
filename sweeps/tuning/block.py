"""The `tune` block of a sweep file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.checks import Seeds, Settings, distinct

Count = Annotated[int, Range(at_least=1)]
Score = Literal["val/rsum", "val/i2t_r1", "val/i2t_r5", "val/i2t_r10", "val/t2i_r1", "val/t2i_r5", "val/t2i_r10"]
"""What candidates are compared by. Never a number of the test split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Settings):
    """The values that a setting may take, in Ray Tune's words. Exactly one of them is given."""

    uniform: tuple[float, ...] = ()
    """Two bounds of a number. Every value between them is equally likely."""
    loguniform: tuple[float, ...] = ()
    """Two bounds, above 0, of a number whose logarithm is drawn."""
    choice: Annotated[tuple[AxisValue, ...], AfterValidator(distinct)] = ()
    """Values of which one is drawn."""

    def problems(self) -> Iterator[str]:
        given = [item.name for item in fields(self) if getattr(self, item.name)]
        if len(given) != 1:
            words = ", ".join(item.name for item in fields(self))
            yield f"needs one of {words} with its values, got {' and '.join(given) or 'none'}"
        elif not self.choice and (len(self.ends) != 2 or not self.ends[0] < self.ends[1]):  # type: ignore[operator]
            yield f"{self.kind} needs two bounds, the lower one first, got {list(self.ends)}"
        elif self.loguniform and self.loguniform[0] <= 0:
            yield f"loguniform needs bounds above 0, got {list(self.loguniform)}"

    @property
    def kind(self) -> Literal["uniform", "loguniform", "choice"]:
        """The word that is given."""
        return "uniform" if self.uniform else "loguniform" if self.loguniform else "choice"

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of a range."""
        low, high = self.uniform or self.loguniform
        return low, high

    @property
    def ends(self) -> tuple[AxisValue, ...]:
        """The values of `choice`, or the bounds of a range: what is checked."""
        return self.choice or self.uniform or self.loguniform


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneConfig(Settings):
    """How each objective's constants are searched before the reporting seeds train."""

    space: Annotated[Mapping[str, Domain], Field(min_length=1)]
    """What is searched: keys as in `--set`, such as `objectives.params.tau` or `stages.frozen.lr`."""
    budget: Count
    """Candidates of each objective: the same for all."""
    search: Literal["random", "tpe"] = "random"
    """`random`: listed values come in every combination once, if `budget` lasts; `tpe`: Optuna's tree-structured Parzen
    estimator."""
    search_seed: Annotated[int, Range(at_least=0)] = 1
    """Seed of the search. The same seed gives the same candidates."""
    batch: Count = 4
    """Candidates of an objective that `tpe` proposes at a time."""
    seeds: Seeds = (101,)
    """Seeds that every candidate is trained with, apart from the sweep's own."""
    metric: Score = "val/rsum"
    """What decides: at the best epoch by val/rsum, mean over `seeds`."""
    include_default: bool = True
    """Whether the sweep's own settings are candidate 0 of each objective."""
