"""The search for each objective's constants, which `runners.launch.tuning` carries out.

Its `tune` block in a sweep file, its record, its space with the candidates of random search, and what is refused.

Draws are hashes of the search's seed, the setting and a number, so that the n-th draw of a setting is the same in every
objective, on every machine and with every version of every library.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import chain, count, islice, product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AllowInfNan, Field

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.goal_core.basics.ranges import Range
from goal_sweep.goal_core.objectives.config import ObjectiveConfig
from goal_sweep.goal_core.objectives.variants import accepted_parameters
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING
from goal_sweep.sweeps import axes
from goal_sweep.sweeps.checks import Seeds, Settings, distinct, failures, refuse

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
    choice: Annotated[tuple[axes.AxisValue, ...], AfterValidator(distinct)] = ()
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
    def ends(self) -> tuple[axes.AxisValue, ...]:
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


Values = Mapping[str, axes.AxisValue]
"""A value for every searched setting that an objective has, by the setting's name in labels, such as `tau`."""
_Score = Annotated[float, AllowInfNan(False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One setting of an objective's constants, which all seeds of the search train. Its scores are of val."""

    number: int
    """In the order in which the search proposed them, from 0."""
    values: Values
    default: bool = False
    """Whether these are the sweep's own settings."""
    score: _Score | None = None
    """The mean over the search's seeds of its metric at the selected epoch."""
    scores: Mapping[str, _Score] = field(default_factory=dict)
    failed: str = ""
    """Why it has no score; empty if it has one, or has not ended."""

    @property
    def ended(self) -> bool:
        """Whether it has a score, or failed."""
        return self.score is not None or self.failed != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The search of one objective on one backbone."""

    backbone: str
    pair: str
    triplet: str
    names: tuple[str, ...]
    """The searched settings that the objective has, as labels have them."""
    candidates: tuple[Candidate, ...]
    is_over: bool = False
    """Whether all candidates have ended and no more will come."""
    chosen: int | None = None
    """The number of the chosen candidate; None until all studies of the sweep are over, and where none has a score."""

    @property
    def objective(self) -> tuple[str, str]:
        """``(pair, triplet)``."""
        return self.pair, self.triplet

    @property
    def choice(self) -> Candidate | None:
        """The chosen candidate."""
        return None if self.chosen is None else self.candidates[self.chosen]


_MAX_LISTED = 20_000
"""Combinations of listed values that are shuffled as a whole; of more, each is drawn by itself."""
_MAX_REPEATS = 1_000
"""Draws in a row that repeat earlier ones, after which a space that is drawn from without end counts as used up."""
_DIGITS = 4
"""Digits to which a drawn number is rounded, so that it can be read, written and repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension(axes.Setting):
    """One setting of a search."""

    domain: Domain

    def at(self, share: float) -> axes.AxisValue:
        """The value at a share of the domain, from 0 to below 1."""
        if values := self.domain.choice:
            return values[int(share * len(values))]
        low, high = self.domain.bounds
        if self.domain.loguniform:
            return self.rounded(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
        return self.rounded(low + share * (high - low))

    def rounded(self, value: float) -> float:
        """A number of a range as it is tried."""
        low, high = self.domain.bounds
        return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


def dimensions_of(tune: TuneConfig) -> dict[str, Dimension]:
    """Every setting of a search, by what it is called in labels and reports."""
    dimensions = [Dimension(key=key, domain=domain) for key, domain in tune.space.items()]
    return dict(zip(axes.axis_names(dimensions), dimensions, strict=True))


class Space:
    """The space of the search of a sweep that has a `tune` block, for the objective ``(pair, triplet)``."""

    def __init__(self, config: Any, name: tuple[str, str]) -> None:
        self._config, self._tune, self.name = config, config.tune, name
        self._known: dict[str, tuple[ObjectiveConfig, axes.Configuration]] = {}

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """The settings that the objective knows, by name, in the order of the sweep file."""
        return {name: item for name, item in dimensions_of(self._tune).items() if self._knows(item)}

    def _knows(self, dimension: Dimension) -> bool:
        if dimension.stage:
            return True
        if dimension.key.startswith(axes.PARAMETER):
            return dimension.setting in accepted_parameters(*self.name, self._config.objectives.variant)
        own = self._with({})[0].resolved()
        return any(self._with({dimension.key: value})[0].resolved() != own for value in dimension.domain.choice)

    def at(self, values: Values) -> tuple[ObjectiveConfig, axes.Configuration]:
        """The objective and the sweep's settings with some values; a `ConfigError` if they do not go together."""
        return self._with({self.dimensions[name].key: value for name, value in values.items()})

    def _with(self, by_key: Values) -> tuple[ObjectiveConfig, axes.Configuration]:
        text = json.dumps(by_key, sort_keys=True)
        if text not in self._known:
            configuration = axes.settings_at(self._config, by_key)
            self._known[text] = (
                configuration.objectives.configs[configuration.objectives.names.index(self.name)],
                configuration,
            )
        return self._known[text]

    def shown(self, values: Values) -> Values:
        """The value of every setting that the objective knows; the sweep's own where none is given."""
        objective, configuration = self.at(values)
        constants = {**objective.resolved(), "variant": objective.variant}
        stages = {str(stage.name): stage for stage in configuration.stages}
        return {
            name: getattr(stages[own.stage], own.setting) if own.stage else constants[own.setting]
            for name, own in self.dimensions.items()
        }

    def distinct(
        self, proposals: Iterable[Values], before: Sequence[Values] = (), most_repeats: float = math.inf
    ) -> Iterator[Values]:
        """The proposals that train another model than all earlier ones, until so many in a row do not."""
        seen, repeats = {self._model(values) for values in before}, 0
        for values in proposals:
            model = self._model(values)
            if model not in seen:
                seen.add(model)
                repeats = 0
                yield values
            elif (repeats := repeats + 1) == most_repeats:
                return

    def _model(self, values: Values) -> str:
        """The same text for values that train the same model."""
        objective, configuration = self.at(values)
        return json.dumps(objective.resolved(), sort_keys=True) + repr(configuration.stages)

    def first(self) -> list[Values]:
        """The sweep's own settings, where they are among the candidates."""
        return [self.shown({})] if self._tune.include_default else []

    def random(self) -> Iterator[Values]:
        """Candidates drawn at random, all different and without those of `first`; listed values without repetition."""
        choices = [own.domain.choice for own in self.dimensions.values()]
        if all(choices) and math.prod(map(len, choices)) <= _MAX_LISTED:
            listed = (dict(zip(self.dimensions, values, strict=True)) for values in product(*choices))
            return self.distinct(sorted(listed, key=self._order), self.first())
        drawn = (
            {name: own.at(self._share(own.key, number)) for name, own in self.dimensions.items()} for number in count()
        )
        return self.distinct(drawn, self.first(), _MAX_REPEATS)

    def without_scores(self, budget: int) -> list[Values]:
        """The first candidates of random search."""
        return list(islice(chain(self.first(), self.random()), budget))

    def _order(self, values: Values) -> float:
        return self._share("order", {self.dimensions[name].key: value for name, value in values.items()})

    def _share(self, *of: object) -> float:
        """A number from 0 to below 1 that depends on the search's seed and on what it is for, and on nothing else."""
        text = json.dumps([self._tune.search_seed, *of], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def check_tune(config: Any) -> None:
    """Refuse a search that does not go together with its sweep, and settings and values that cannot be searched."""
    if config.tune is not None:
        refuse(_problems(config, config.tune))


def _problems(config: Any, tune: TuneConfig) -> Iterator[str]:
    """What cannot be searched, and what does not go together with the sweep."""
    for searched in dimensions_of(tune).values():
        yield from (f"tune.space.{searched.key}: {text}" for text in _dimension(config, searched))
    if config.axes:
        keys = ", ".join(axis.key for axis in config.axes)
        yield f"tune: needs one value of every setting, but the sweep has lists for {keys}; tune each value by itself"
    if both := [str(seed) for seed in tune.seeds if seed in config.seeds]:
        why = "a seed that also chose the constants would flatter them"
        yield f"tune.seeds: {', '.join(both)} reports results of this sweep; {why}"
    for stage in config.stages:
        if stage.select_on == "test":
            yield f"tune: needs stages that select on val, but {stage.name} selects on test, which would choose by it"


def _dimension(config: Any, searched: Dimension) -> list[str]:
    """What is wrong with a setting of the space and its values, each by itself."""
    variant, known = config.objectives.variant, {axes.VARIANT: None}
    for pair, triplet in config.objectives.names:
        known |= dict.fromkeys(axes.PARAMETER + name for name in accepted_parameters(pair, triplet, variant))
    known |= dict.fromkeys(f"stages.{stage.name}.{name}" for stage in config.stages for name in OF_ONE_TRAINING)
    if searched.key not in known:
        return [f"cannot be searched{nearest(searched.key, known)}; a space may have {', '.join(known)}"]
    if why := axes.idle(config, searched):
        return [why]
    ends = searched.domain.ends
    wrong = [text for one in ends for text in failures(axes.checked_value, config, searched.key, one)]
    return wrong if searched.domain.choice else [f"{text}; choice lists values" for text in wrong[:1]]
