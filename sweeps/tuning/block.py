"""The `tune` block of a sweep file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator

from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.sweeps.axes import AxisValue
from goal_sweep.sweeps.checks import Settings, check_seeds

Count = Annotated[int, Range(at_least=1)]
Kind = Literal["uniform", "loguniform", "choice"]
Score = Literal["val/rsum", "val/i2t_r1", "val/i2t_r5", "val/i2t_r10", "val/t2i_r1", "val/t2i_r5", "val/t2i_r10"]
"""What candidates are compared by. Never a number of the test split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Settings):
    """The values that a setting may take, in Ray Tune's words. Exactly one of them is given."""

    uniform: tuple[float, ...] = ()
    """Two bounds of a number. Every value between them is equally likely."""
    loguniform: tuple[float, ...] = ()
    """Two bounds, above 0, of a number whose logarithm is drawn."""
    choice: tuple[AxisValue, ...] = ()
    """Values of which one is drawn."""

    def problems(self) -> Iterator[str]:
        """Another number of words than one, and values that cannot be its values."""
        given = [item.name for item in fields(self) if getattr(self, item.name)]
        bounds = self.uniform or self.loguniform
        values = [(isinstance(value, bool), value) for value in self.choice]  # 1 equals 1.0, but is not true
        if len(given) != 1:
            words = ", ".join(item.name for item in fields(self))
            yield f"needs one of {words} with its values, got {' and '.join(given) or 'none'}"
        elif twice := dict.fromkeys(value for value in values if values.count(value) > 1):
            yield f"choice has {', '.join(repr(value) for _, value in twice)} more than once"
        elif bounds and (len(bounds) != 2 or not bounds[0] < bounds[1]):
            yield f"{self.kind} needs two bounds, the lower one first, got {list(bounds)}"
        elif self.loguniform and bounds[0] <= 0:
            yield f"loguniform needs bounds above 0, got {list(bounds)}"

    @property
    def kind(self) -> Kind:
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
        return self.choice or self.bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class StopEarly(Settings):
    """Successive halving: the weaker candidates of an objective end before their last epoch.

    Source: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization".
    """

    first: Count
    """The epoch after which candidates are compared for the first time."""
    factor: Annotated[int, Range(at_least=2)] = 2
    """One of so many candidates goes on; they are compared again after so many times the epochs."""

    def rungs(self, epochs: int) -> tuple[int, ...]:
        """The epochs after which candidates are compared, all before the last of so many."""
        rungs = [self.first]
        while rungs[-1] * self.factor < epochs:
            rungs.append(rungs[-1] * self.factor)
        return tuple(rung for rung in rungs if rung < epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneConfig(Settings):
    """How each objective's constants are searched before the reporting seeds train."""

    space: Mapping[str, Domain]
    """What is searched: keys as in `--set`, such as `objectives.params.tau` or `stages.frozen.lr`."""
    budget: Count
    """Candidates of each objective: the same for all."""
    search: Literal["random", "tpe"] = "random"
    """`random`: listed values come in every combination once, if `budget` lasts; `tpe`: Optuna's tree-structured Parzen
    estimator."""
    search_seed: Annotated[int, Range(at_least=0)] = 1
    """Seed of the search. The same seed gives the same candidates."""
    batch: Count = 4
    """Candidates of an objective that `tpe` proposes at a time, and of which `stop_early` keeps the best."""
    seeds: Annotated[tuple[int, ...], AfterValidator(check_seeds)] = (101,)
    """Seeds that every candidate is trained with, apart from the sweep's own."""
    metric: Score = "val/rsum"
    """What decides: at the best epoch by val/rsum, mean over `seeds`."""
    stop_early: Annotated[StopEarly | None, BeforeValidator(lambda given: None if given is False else given)] = None
    """Successive halving, for each objective by itself; false, as by default, trains every candidate to its end."""
    include_default: bool = True
    """Whether the sweep's own settings are candidate 0 of each objective."""

    def problems(self) -> Iterator[str]:
        """An empty space, and batches that the budget does not fill."""
        if not self.space:
            yield "space must have at least one setting, such as objectives.params.tau"
        if self.stop_early and self.batch >= 1 and self.budget % self.batch:
            yield (
                f"budget must be a multiple of batch ({self.batch}) with stop_early, which keeps the best of each "
                f"batch; got {self.budget}"
            )
