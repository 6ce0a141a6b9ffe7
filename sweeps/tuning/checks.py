"""Checks of a `tune` block against its sweep."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from typing import Any

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.goal_core.objectives.variants import accepted_parameters
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING
from goal_sweep.sweeps.axes import PARAMETER, VARIANT, checked_value, idle, settings_at, value_text
from goal_sweep.sweeps.checks import failures, refuse
from goal_sweep.sweeps.tuning.block import TuneConfig
from goal_sweep.sweeps.tuning.space import Dimension, dimensions_of

MAX_CANDIDATES = 20_000
"""Candidates of a sweep, over all objectives, backbones and seeds of its search."""


def check_tune(config: Any) -> None:
    """Check the search of a sweep whose other settings are valid.

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
    refuse(_pairs(config, dimensions))


def _block(config: Any, tune: TuneConfig) -> Iterator[str]:
    """What does not go together with the sweep."""
    if config.axes:
        keys = ", ".join(axis.key for axis in config.axes)
        yield f"tune: needs one value of every setting, but the sweep has lists for {keys}; tune each value by itself"
    if both := [str(seed) for seed in tune.seeds if seed in config.seeds]:
        why = "a seed that also chose the constants would flatter them"
        yield f"tune.seeds: {', '.join(both)} reports results of this sweep; {why}"
    cells = len(config.model.backbones) * len(config.objectives.names) * len(tune.seeds)
    if (count := tune.budget * cells) > MAX_CANDIDATES:
        yield f"tune.budget: {tune.budget} makes {count:,} trainings; a search may have {MAX_CANDIDATES:,}"
    for stage in config.stages:
        if stage.select_on == "test":
            yield f"tune: needs stages that select on val, but {stage.name} selects on test, which would choose by it"


def _dimension(config: Any, searched: Dimension) -> list[str]:
    """What is wrong with a setting of the space and its values, each by itself."""
    accepted = (accepted_parameters(*names, config.objectives.variant) for names in config.objectives.names)
    parameters = list(dict.fromkeys(f"{PARAMETER}{name}" for own in accepted for name in own))
    stages = [f"stages.{stage.name}" for stage in config.stages]
    known = [VARIANT, *parameters, *(f"{stage}.{setting}" for stage in stages for setting in OF_ONE_TRAINING)]
    if searched.key not in known:
        can = f"{', '.join([VARIANT, *parameters])}, and of {' and '.join(stages)} {', '.join(OF_ONE_TRAINING)}"
        return [f"cannot be searched{nearest(searched.key, known)}; a space may have {can}"]
    if why := idle(config, searched):
        return [why]
    ends = searched.domain.ends
    wrong = [text for one in ends for text in failures(partial(checked_value, config, searched.key, one))]
    return wrong if searched.domain.choice else [f"{text}; choice lists values" for text in wrong[:1]]


def _pairs(config: Any, dimensions: list[Dimension]) -> Iterator[str]:
    """Values of two settings that do not go together, of ranges their bounds; the first such pair."""
    for searched, other in combinations(dimensions, 2):
        for value, beside in product(searched.domain.ends, other.domain.ends):
            for text in failures(partial(settings_at, config, {searched.key: value, other.key: beside})):
                values = f"{searched.setting} {value_text(value)} and {other.setting} {value_text(beside)}"
                yield f"tune.space.{other.key}: {values} do not go together: {text}"
                return
