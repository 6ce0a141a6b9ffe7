"""The space of a search: which settings an objective knows, and the candidates of random and grid search."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice, product
from typing import Any

from goal_core.objectives import ObjectiveConfig, accepted_parameters
from sweeps.axes import PARAMETER, VARIANT, AxisValue, Point, Setting, axis_names, settings_at
from sweeps.tuning.block import Domain, TuneConfig

Values = Mapping[str, AxisValue]
"""Values of some settings, by key. Settings that are not there have the sweep's own."""
_MAX_LISTED = 20_000
"""Combinations of listed values that are shuffled as a whole; of more, each is drawn by itself."""
_MAX_REPEATS = 1_000
"""Draws in a row that repeat earlier ones, after which a space that is drawn from without end counts as used up."""
_DIGITS = 4
"""Digits to which a drawn number is rounded, so that it can be read, written and repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension(Setting):
    """One setting of a search."""

    domain: Domain

    def at(self, share: float) -> AxisValue:
        """The value at a share of the domain, from 0 to below 1."""
        if values := self.domain.values:
            return values[int(share * len(values))]
        low, high = self.domain.bounds
        if self.domain.kind == "loguniform":
            return self.rounded(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))
        return self.rounded(low + share * (high - low))

    def rounded(self, value: float) -> float:
        """A number of a range as it is tried."""
        low, high = self.domain.bounds
        return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One point of an objective's search; all seeds of the search train it."""

    backbone: str
    pair: str
    triplet: str
    number: int
    """From 0, in the order in which the search proposed it."""
    values: Values
    """Values of the settings that the objective knows; empty for the sweep's own."""
    until: int = 0
    """The epoch of the last stage to which it is trained by now; 0: to the end."""

    @property
    def study(self) -> tuple[str, str, str]:
        """Whose search it belongs to: backbone, pair and triplet."""
        return self.backbone, self.pair, self.triplet


class Space:
    """The space of a sweep's search, for one objective.

    Args:
        config: the sweep.
        tune: its block.
        pair: the objective's pair weight.
        triplet: the objective's triplet weight.
    """

    def __init__(self, config: Any, tune: TuneConfig, pair: str, triplet: str) -> None:
        self._config, self._tune, self.name = config, tune, (pair, triplet)
        """The objective, as (pair, triplet)."""
        self._known: dict[str, tuple[ObjectiveConfig, Point]] = {}

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The settings that the objective knows, in the order of the sweep file."""
        found = [Dimension(key=key, domain=domain) for key, domain in self._tune.space.items()]
        return tuple(one for one in found if self._knows(one))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What these settings are called in reports: as in all of the space."""
        called = names_of(self._tune)
        return tuple(called[one.key] for one in self.dimensions)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the objective."""
        return tuple(accepted_parameters(*self.name, self._config.objectives.variant))

    def _knows(self, dimension: Dimension) -> bool:
        if dimension.stage:
            return True
        if dimension.key.startswith(PARAMETER):
            return dimension.setting in self.parameters
        own = self.at({})[0].resolved()
        return any(self.at({dimension.key: value})[0].resolved() != own for value in dimension.domain.values)

    def at(self, values: Values) -> tuple[ObjectiveConfig, Point]:
        """The objective and the sweep's settings with some values.

        Raises:
            ConfigError: the values do not go together.
        """
        key = json.dumps(values, sort_keys=True)
        if key not in self._known:
            point = settings_at(self._config, values)
            names = list(point.objectives.names)
            self._known[key] = point.objectives.configs[names.index(self.name)], point
        return self._known[key]

    def shown(self, values: Values) -> dict[str, AxisValue]:
        """The value of every setting that the objective knows, by name; the sweep's own where none is given."""
        objective, point = self.at(values)
        resolved, stages = objective.resolved(), {str(stage.name): stage for stage in point.stages}
        found: dict[str, AxisValue] = {}
        for one, name in zip(self.dimensions, self.names, strict=True):
            if one.stage:
                found[name] = getattr(stages[one.stage], one.setting)
            else:
                found[name] = objective.variant if one.key == VARIANT else resolved[one.setting]
        return found

    def identity(self, values: Values) -> str:
        """The same text for values that train the same model."""
        objective, point = self.at(values)
        return json.dumps(objective.resolved(), sort_keys=True) + repr(point.stages)

    def distinct(
        self, proposals: Iterable[Values], before: Sequence[Values] = (), most_repeats: float = math.inf
    ) -> Iterator[Values]:
        """Those of some proposals that train another model than all earlier ones.

        Ends with the proposals, or after so many repetitions in a row.
        """
        seen, repeats = {self.identity(one) for one in before}, 0
        for values in proposals:
            name = self.identity(values)
            if name not in seen:
                seen.add(name)
                repeats = 0
                yield values
            elif (repeats := repeats + 1) == most_repeats:
                return

    def first(self) -> list[Values]:
        """The sweep's own settings, where they are among the candidates."""
        return [{}] if self._tune.include_default else []

    def grid(self) -> list[Values]:
        """Every combination, that of the last setting changing fastest, after the sweep's own settings."""
        return list(self.distinct(self._listed(), self.first()))

    def random(self) -> Iterator[Values]:
        """Candidates drawn at random, all of them different, without those of `first`.

        The n-th draw of a setting is the same in every objective, so that objectives are compared at the same values
        and share the learning rates of their units. Values that are all listed are drawn without repetition.
        """
        domains = [one.domain for one in self.dimensions]
        listed = all(domain.values for domain in domains)
        if listed and math.prod(len(domain.values) for domain in domains) <= _MAX_LISTED:
            return self.distinct(sorted(self._listed(), key=lambda values: self._share("order", values)), self.first())
        drawn = ({one.key: one.at(self._share(one.key, number)) for one in self.dimensions} for number in count())
        return self.distinct(drawn, self.first(), _MAX_REPEATS)

    def without_scores(self, budget: int) -> list[Values]:
        """The first candidates of random search or, if the sweep asks for it, of the grid."""
        rest = self.grid() if self._tune.search == "grid" else self.random()
        return list(islice(chain(self.first(), rest), budget))

    def _listed(self) -> Iterator[Values]:
        keys = [one.key for one in self.dimensions]
        for values in product(*(one.domain.values for one in self.dimensions)):
            yield dict(zip(keys, values, strict=True))

    def _share(self, *of: object) -> float:
        """A number from 0 to below 1 that depends on the search's seed and on what it is for, and on nothing else."""
        text = json.dumps([self._tune.search_seed, *of], sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big") / 2**48


def names_of(tune: TuneConfig) -> dict[str, str]:
    """What each setting of a space is called in reports, by key."""
    dimensions = [Dimension(key=key, domain=domain) for key, domain in tune.space.items()]
    return dict(zip(tune.space, axis_names(dimensions), strict=True))
