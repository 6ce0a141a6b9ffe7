"""Checks of a `tune` block against its sweep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.goal_core.objectives import accepted_parameters
from goal_sweep.goal_core.objectives.variants import Variant
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING, StageConfig
from goal_sweep.sweeps.axes import PARAMETER, VARIANT, AxisValue, idle, settings_at, value_text
from goal_sweep.sweeps.checks import failures, refuse
from goal_sweep.sweeps.identity import reader_of
from goal_sweep.sweeps.tuning.block import TuneConfig
from goal_sweep.sweeps.tuning.space import Dimension, Space, dimensions_of

MAX_CANDIDATES = 20_000
"""Candidates of a sweep, over all objectives, backbones and seeds of its search."""
_STAGE_TYPES = get_type_hints(StageConfig)


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
    dimensions = list(dimensions_of(tune).values())
    of_space = (f"tune.space.{item.key}: {text}" for item in dimensions for text in _dimension(config, item))
    refuse([*of_space, *_block(config, tune)])
    refuse(list(_pairs(config, dimensions)))


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
    if (count := tune.budget * cells) > MAX_CANDIDATES:
        yield f"tune.budget: {tune.budget} makes {count:,} trainings; a search may have {MAX_CANDIDATES:,}"
    for stage in config.stages:
        if stage.select_on == "test":
            yield f"tune: needs stages that select on val, but {stage.name} selects on test, which would choose by it"
    last = config.stages[-1]
    in_space = tune.space.get(f"stages.{last.name}.warmup_epochs")
    warmup = max(
        [last.warmup_epochs, *(value for value in (in_space.choice if in_space else ()) if type(value) is int)]
    )
    if tune.stop_early and not warmup < tune.stop_early.first < last.epochs:
        yield (
            f"tune.stop_early: first must lie between the warm-up and the last epoch of {last.name}, in "
            f"{warmup + 1} to {last.epochs - 1}, got {tune.stop_early.first}"
        )


def _dimension(config: Any, searched: Dimension) -> list[str]:
    """What is wrong with a setting of the space and its values, each by itself."""
    if problem := _key_problem(config, searched):
        return [problem]
    domain = searched.domain
    kind = Variant if searched.key == VARIANT else _STAGE_TYPES[searched.setting] if searched.stage else None
    if not domain.choice and not _has_ranges(config, searched, kind):
        return [f"takes no numbers between others; write choice, got {domain.kind}"]
    if kind is not None and (wrong := [value_text(value) for value in domain.ends if not _is(kind, value)]):
        names = f"; it may be {', '.join(get_args(kind))}" if kind is Variant else ""
        return [f"{', '.join(wrong)} cannot be its value{names}"]
    return [
        text.removeprefix(f"params.{searched.setting}: ")
        for value in domain.ends
        for text in failures(partial(settings_at, config, {searched.key: value}))
    ]


def _has_ranges(config: Any, searched: Dimension, kind: Any) -> bool:
    """Whether a setting takes any number between two; a parameter of the objectives does if its default is one."""
    if kind is not None:
        return kind is float
    variant = config.objectives.variant
    defaults = (accepted_parameters(pair, triplet, variant) for pair, triplet in config.objectives.names)
    return any(type(own.get(searched.setting)) in (int, float) for own in defaults)


def _is(kind: Any, value: AxisValue) -> bool:
    """Whether a value is of a setting's type, as a sweep file would have to write it."""
    try:
        reader_of(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True


def _key_problem(config: Any, searched: Dimension) -> str:
    """Why a key cannot be in a space; empty if it can."""
    words, can = searched.key.split("."), ", ".join(OF_ONE_TRAINING)
    if searched.key == VARIANT or (searched.key.startswith(PARAMETER) and len(words) == 3):
        spaces = (Space(config, config.tune, *name) for name in config.objectives.names)
        known = list(dict.fromkeys(name for space in spaces for name in space.parameters))
        if searched.key == VARIANT or searched.setting in known:
            return ""
        hint = f"{nearest(searched.setting, known)}; known: {', '.join(known) or 'none'}"
        return f"no objective of this sweep has this parameter{hint}"
    if words[0] != "stages" or len(words) != 3:
        return (
            "cannot be searched; a space has objectives.variant, objectives.params.NAME, and stages.STAGE.SETTING with "
            f"one of {can}"
        )
    stages = [stage.name for stage in config.stages]
    if words[1] not in stages:
        return f"the sweep has no stage {words[1]!r}; it has {', '.join(stages)}"
    if words[2] not in _STAGE_TYPES:
        return f"a stage has no such setting{nearest(words[2], OF_ONE_TRAINING)}"
    if words[2] not in OF_ONE_TRAINING:
        return f"cannot be searched, because candidates share batches, features and evaluations; a space may have {can}"
    return idle(config, words[1], words[2])


def _pairs(config: Any, dimensions: list[Dimension]) -> Iterator[str]:
    """Values of two settings that do not go together, of ranges their bounds; the first such pair."""
    for searched, other in combinations(dimensions, 2):
        for value, beside in product(searched.domain.ends, other.domain.ends):
            for text in failures(partial(settings_at, config, {searched.key: value, other.key: beside})):
                values = f"{searched.setting} {value_text(value)} and {other.setting} {value_text(beside)}"
                yield f"tune.space.{other.key}: {values} do not go together: {text}"
                return
