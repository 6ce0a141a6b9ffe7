"""The trail of a tuned sweep: what was tried for each objective, and what was chosen. Read from ``tuning.json``.

Every score is of the validation split. No candidate has a test number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, Field, TypeAdapter, ValidationError
from typing_extensions import TypeIs

from analysis.blocks import BlockKey, Objective
from analysis.errors import AnalysisError

FORMAT = 1
EDGE = 0.05
"""The share of a range, at either end, in which a choice is said to lie on its edge."""

Value = bool | int | float | str | list[int] | None
_Score = Annotated[float, AllowInfNan(False)]
_Whole = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One setting that was searched."""

    key: str
    """As in the sweep file, such as ``objectives.params.tau``."""
    name: str
    """As in labels, such as ``tau``."""
    kind: Literal["uniform", "loguniform", "choice", "grid"]
    low: _Score | None = None
    """The lower end of a range; None for a list of values."""
    high: _Score | None = None
    values: list[Value] | None = None
    """The list of values; None for a range."""

    @property
    def parameter(self) -> str:
        """The MLflow parameter that a run states its value in; that of the variant is a tag."""
        return self.key.replace("objectives.params.", "objective.").replace("objectives.variant", "variant")

    @property
    def ends(self) -> tuple[float, float] | None:
        """The lowest and the highest value; None where values are no numbers, or the same."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        numbers = [value for value in self.values or () if is_number(value)]
        if len(numbers) < len(self.values or ()) or len(set(numbers)) < 2:
            return None
        return float(min(numbers)), float(max(numbers))

    @property
    def is_log(self) -> bool:
        """Whether positions are counted in powers: a range that is searched so, or a list over a factor of ten."""
        ends = self.ends
        if self.kind in ("uniform", "loguniform") or ends is None:
            return self.kind == "loguniform"
        return ends[0] > 0 and ends[1] / ends[0] >= 10

    def position(self, value: Value) -> float | None:
        """Where a value lies between the ends, from 0 to 1, outside of which it may lie; None where there are none."""
        if self.ends is None or not is_number(value):
            return None
        low, high, at = *self.ends, float(value)
        if self.is_log:
            if at <= 0:
                return -math.inf
            low, high, at = math.log(low), math.log(high), math.log(at)
        return (at - low) / (high - low)

    def edge(self, value: Value) -> str:
        """``lower edge``, ``upper edge``, ``below the range``, ``above the range``, or an empty string.

        A value of a list lies on an edge if it is the lowest or the highest of at least three.
        """
        at = self.position(value)
        if at is None:
            return ""
        if at < -1e-9 or at > 1 + 1e-9:
            return "below the range" if at < 0 else "above the range"
        near = EDGE if self.values is None else 1e-9
        if self.values is not None and len(self.values) < 3:
            return ""
        return "lower edge" if at <= near else "upper edge" if at >= 1 - near else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One setting that was tried for an objective."""

    number: _Whole
    """In the order in which the searcher proposed them, from 0."""
    values: dict[str, Value]
    """By the names of the dimensions that the objective has."""
    default: bool
    """Whether these are the sweep's own settings."""
    score: _Score | None
    """The mean over the tuning seeds of the metric at the selected epoch; None without one."""
    scores: dict[str, _Score]
    """By seed."""
    epochs: _Whole
    """How many it trained."""
    stopped: bool
    """Whether it was stopped before its last epoch."""
    failed: str | None
    """Why it has no score, if it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trail:
    """Everything that was tried for one objective of a block."""

    pair: str
    triplet: str
    names: list[str]
    """The dimensions that the objective has."""
    candidates: list[Candidate]
    """In the order of their numbers."""
    chosen: int | None
    """The number of the chosen candidate; None where none has a score."""

    @property
    def objective(self) -> Objective:
        """``(pair, triplet)``."""
        return self.pair, self.triplet

    @property
    def choice(self) -> Candidate | None:
        """The chosen candidate."""
        return None if self.chosen is None else self.candidates[self.chosen]

    @property
    def default(self) -> Candidate | None:
        """The candidate with the sweep's own settings; None where it was not among them."""
        return next((one for one in self.candidates if one.default), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedBlock:
    """The trails of one dataset, framework and backbone."""

    dataset: str
    framework: str
    backbone: str
    objectives: list[Trail]

    def is_of(self, key: BlockKey) -> bool:
        """Whether a block of the report is of this dataset, framework and backbone."""
        return (self.dataset, self.framework, self.backbone) == (key.dataset, key.framework, key.backbone)

    @property
    def trails(self) -> dict[Objective, Trail]:
        """By objective."""
        return {trail.objective: trail for trail in self.objectives}


@dataclass(frozen=True, slots=True, kw_only=True)
class Halving:
    """Successive halving: when candidates are first compared, and which share goes on."""

    first: Annotated[int, Field(ge=1)]
    factor: Annotated[float, Field(gt=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What a sweep was tuned over, with which budget, and what was chosen."""

    format: Literal[1]
    metric: Annotated[str, Field(pattern="^val/")]
    budget: Annotated[int, Field(ge=1)]
    """Candidates of each objective."""
    search: Literal["random", "grid", "tpe"]
    search_seed: int
    seeds: Annotated[list[int], Field(min_length=1)]
    """The seeds that candidates trained with, apart from those of the report."""
    stop_early: Halving | None
    space: Annotated[list[Dimension], Field(min_length=1)]
    blocks: list[TunedBlock]

    @property
    def dimensions(self) -> dict[str, Dimension]:
        """By name."""
        return {dimension.name: dimension for dimension in self.space}

    def block(self, key: BlockKey) -> TunedBlock | None:
        """The trails of a block of the report."""
        return next((block for block in self.blocks if block.is_of(key)), None)

    def trail(self, dataset: str, framework: str, backbone: str, objective: Objective) -> Trail | None:
        """The trail of one objective."""
        for block in self.blocks:
            if (block.dataset, block.framework, block.backbone) == (dataset, framework, backbone):
                return block.trails.get(objective)
        return None

    def chose_default(self, dataset: str, framework: str, backbone: str, objective: Objective) -> bool:
        """Whether the choice of an objective was the sweep's own settings."""
        trail = self.trail(dataset, framework, backbone, objective)
        return bool(trail and trail.choice and trail.choice.default)


def parse_tuning(content: bytes, where: str) -> Tuning:
    """Read the file of a tuned sweep.

    Args:
        content: the file.
        where: names the file in messages.

    Raises:
        AnalysisError: it is damaged, or of a newer format; the message names what is wrong.
    """
    try:
        stated: Any = json.loads(content)
        number = stated["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise AnalysisError(f"{where} is damaged: not a JSON object with a format") from error
    if isinstance(number, int) and number > FORMAT:
        raise AnalysisError(f"{where} has format {number}; this goal-sweep reads format {FORMAT}. Update goal-sweep")
    try:
        tuning = TypeAdapter(Tuning).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise AnalysisError(f"{where} is damaged: {place}: {first['msg']}") from error
    problem = next(_problems(tuning), None)
    if problem:
        raise AnalysisError(f"{where} is damaged: {problem}")
    return tuning


def is_number(value: Value) -> TypeIs[int | float]:
    """Whether a value is a number, not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _problems(tuning: Tuning) -> Iterator[str]:
    """What does not fit together in a file whose entries each are well formed."""
    for dimension in tuning.space:
        is_range = dimension.kind in ("uniform", "loguniform")
        low, high = dimension.low, dimension.high
        if is_range and (low is None or high is None or low >= high or (dimension.kind == "loguniform" and low <= 0)):
            yield f"space: {dimension.name} has no range from {low} to {high}"
        if not is_range and not dimension.values:
            yield f"space: {dimension.name} has no values"
    known = tuning.dimensions
    for block in tuning.blocks:
        for trail in block.objectives:
            name = f"{trail.pair}/{trail.triplet} of {block.dataset} {block.backbone}"
            yield from (f"{name}: {text}" for text in _trail_problems(trail, known, tuning))


def _trail_problems(trail: Trail, known: Mapping[str, Dimension], tuning: Tuning) -> Iterator[str]:
    if unknown := sorted(set(trail.names) - set(known)):
        yield f"{', '.join(unknown)} is not in the space"
    if [one.number for one in trail.candidates] != list(range(len(trail.candidates))):
        yield "candidates are not numbered from 0"
    for one in trail.candidates:
        if set(one.values) != set(trail.names):
            yield f"candidate {one.number} does not have the values {', '.join(trail.names)}"
        if not set(one.scores) <= set(map(str, tuning.seeds)):
            yield f"candidate {one.number} has scores of other seeds"
    if trail.chosen is not None and not 0 <= trail.chosen < len(trail.candidates):
        yield f"candidate {trail.chosen} was chosen but is not there"
    elif trail.choice is not None and trail.choice.score is None:
        yield f"candidate {trail.chosen} was chosen without a score"
