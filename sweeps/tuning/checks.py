"""Checks of a `tune` block against its sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError

from goal_core.basics.errors import nearest
from goal_core.objectives import accepted_parameters
from goal_core.objectives.variants import Variant
from goal_core.training.config import OF_ONE_TRAINING, StageConfig
from sweeps.axes import PARAMETER, VARIANT, AxisValue, idle, settings_at, value_text
from sweeps.checks import failures, refuse
from sweeps.tuning.block import TuneConfig
from sweeps.tuning.space import Dimension, Space

MAX_CANDIDATES = 20_000
"""Candidates of a sweep, over all objectives, backbones and seeds of its search."""


def check_tune(config: Any) -> None:
    """Check a sweep's search.

    Args:
        config: the sweep; its other settings are valid.

    Raises:
        ConfigError: the space has a setting that no cell of the sweep has or that touches what cells share, or a value
            that the setting refuses; the block does not go together with the sweep. Lists all problems, each with the
            key that it is about.
    """
    tune: TuneConfig | None = config.tune
    if tune is None:
        return
    dimensions = [Dimension(key=key, domain=domain) for key, domain in tune.space.items()]
    problems = [f"tune.space.{one.key}: {text}" for one in dimensions for text in _dimension(config, one)]
    problems += _block(config, tune)
    refuse(problems)
    refuse(list(_pairs(config, dimensions)))
    refuse(list(_grid(config, tune)))


def _block(config: Any, tune: TuneConfig) -> Iterator[str]:
    """What does not go together with the sweep."""
    if config.axes:
        keys = ", ".join(axis.key for axis in config.axes)
        yield f"tune: needs one value of every setting, but the sweep has lists for {keys}; tune each value by itself"
    if both := [str(seed) for seed in tune.seeds if seed in config.seeds]:
        yield (
            f"tune.seeds: {', '.join(both)} reports results of this sweep; a seed that also chose the constants would "
            "flatter them"
        )
    cells = len(config.model.backbones) * len(config.objectives.names) * len(tune.seeds)
    if tune.budget * cells > MAX_CANDIDATES:
        count = tune.budget * cells
        yield f"tune.budget: {tune.budget} makes {count:,} trainings; a search may have {MAX_CANDIDATES:,}"
    for stage in config.stages:
        if stage.select_on == "test":
            yield f"tune: needs stages that select on val, but {stage.name} selects on test, which would choose by it"
    last = config.stages[-1]
    searched = tune.space.get(f"stages.{last.name}.warmup_epochs")
    warmups = [one for one in (searched.values if searched else ()) if isinstance(one, int)]
    warmup = max(last.warmup_epochs, *warmups) if warmups else last.warmup_epochs
    if tune.stop_early and not warmup < tune.stop_early.first < last.epochs:
        yield (
            f"tune.stop_early: first must lie between the warm-up and the last epoch of {last.name}, in "
            f"{warmup + 1} to {last.epochs - 1}, got {tune.stop_early.first}"
        )


def _dimension(config: Any, one: Dimension) -> list[str]:
    """What is wrong with a setting of the space and its values, each by itself."""
    if problem := _key_problem(config, one):
        return [problem]
    domain = one.domain
    if config.tune.search == "grid" and not domain.values:
        return [f"search grid needs choice or grid, got {domain.kind}"]
    values: tuple[AxisValue, ...] = domain.values or domain.bounds
    kind = Variant if one.key == VARIANT else get_type_hints(StageConfig)[one.setting] if one.stage else None
    if not domain.values and not _has_ranges(config, one, kind):
        return [f"takes no numbers between others; write choice, got {domain.kind}"]
    if kind is not None:
        if wrong := [value_text(value) for value in values if not _is(kind, value)]:
            names = f"; it may be {', '.join(get_args(kind))}" if get_args(kind) and kind is Variant else ""
            return [f"{', '.join(wrong)} cannot be its value{names}"]
    return [
        text.removeprefix(f"params.{one.setting}: ")
        for value in values
        for text in failures(partial(settings_at, config, {one.key: value}))
    ]


def _has_ranges(config: Any, one: Dimension, kind: Any) -> bool:
    """Whether a setting takes any number between two; a parameter of the objectives does if its default is one."""
    if kind is not None:
        return kind is float
    variant = config.objectives.variant
    defaults = [accepted_parameters(pair, triplet, variant) for pair, triplet in config.objectives.names]
    return any(type(own.get(one.setting)) in (int, float) for own in defaults)


def _is(kind: Any, value: AxisValue) -> bool:
    """Whether a value is of a setting's type, as a sweep file would have to write it."""
    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True


def _key_problem(config: Any, one: Dimension) -> str:
    """Why a key cannot be in a space; empty if it can."""
    words = one.key.split(".")
    if one.key == VARIANT or (one.key.startswith(PARAMETER) and len(words) == 3):
        spaces = (Space(config, config.tune, *name) for name in config.objectives.names)
        known = {name: None for space in spaces for name in space.parameters}
        if one.key == VARIANT or one.setting in known:
            return ""
        return (
            f"no objective of this sweep has this parameter{nearest(one.setting, known)}; known: "
            f"{', '.join(known) or 'none'}"
        )
    if words[0] != "stages" or len(words) != 3:
        return (
            "cannot be searched; a space has objectives.variant, objectives.params.NAME, and stages.STAGE.SETTING with "
            f"one of {', '.join(OF_ONE_TRAINING)}"
        )
    stages = [stage.name for stage in config.stages]
    if words[1] not in stages:
        return f"the sweep has no stage {words[1]!r}; it has {', '.join(stages)}"
    if words[2] not in get_type_hints(StageConfig):
        return f"a stage has no such setting{nearest(words[2], OF_ONE_TRAINING)}"
    if words[2] not in OF_ONE_TRAINING:
        return (
            "cannot be searched, because candidates share batches, features and evaluations; a space may have "
            f"{', '.join(OF_ONE_TRAINING)}"
        )
    return idle(config, words[1], words[2])


def _pairs(config: Any, dimensions: list[Dimension]) -> Iterator[str]:
    """Values of two settings that do not go together, of ranges their bounds."""
    for one, other in combinations(dimensions, 2):
        for value in one.domain.values or one.domain.bounds:
            for beside in other.domain.values or other.domain.bounds:
                for text in failures(partial(settings_at, config, {one.key: value, other.key: beside})):
                    values = f"{one.setting} {value_text(value)} and {other.setting} {value_text(beside)}"
                    yield f"tune.space.{other.key}: {values} do not go together: {text}"
                    return


def _grid(config: Any, tune: TuneConfig) -> Iterator[str]:
    """A grid of more combinations than the budget would leave out those that come last."""
    if tune.search != "grid":
        return
    for pair, triplet in config.objectives.names:
        space = Space(config, tune, pair, triplet)
        if (count := len(space.first()) + len(space.grid())) > tune.budget:
            yield (
                f"tune.budget: {tune.budget} is less than the {count} combinations of {pair}/{triplet}; search: random "
                "draws from them"
            )
            return
