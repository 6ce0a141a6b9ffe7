"""Lists in the place of one value: take them out of a sweep file, and check every value at its own line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Final, get_origin, get_type_hints

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING, StageConfig
from goal_sweep.sweeps.axes import Axis, checked_value, too_many_cells
from goal_sweep.sweeps.checks import distinct, failures
from goal_sweep.sweeps.reading.document import Items, KeyPath, Problem, Section, place_of, put, shown, value_at
from goal_sweep.sweeps.reading.validation import validate
from goal_sweep.sweeps.schema import SweepConfig

_STAGE_TYPES: Final = get_type_hints(StageConfig)
_LISTS: Final = frozenset(name for name, kind in _STAGE_TYPES.items() if get_origin(kind) is tuple)
"""Settings whose one value is a list already; several values are a list of lists."""


def validate_lists(root: Section, problems: list[Problem]) -> SweepConfig | None:
    """Build the sweep, and check each value of each list as if it stood alone, then all that go together.

    Args:
        root: the sweep file, complete. The first value takes the place of every list of values.
        problems: receives what is wrong. Then the result means nothing.
    """
    lists = {path: value_at(root, path) for path in _lists(root, problems)}
    for path, values in lists.items():
        put(root, path, values[0], values.places[0])
    several = {shown(root, path): values for path, values in lists.items() if len(values) > 1}
    config = validate(root, SweepConfig, problems)
    if config is None or not several:
        return config
    wheres = {shown(root, path): place_of(root, path) for path in lists}
    if why := too_many_cells(prod(map(len, several.values())), config.num_cells):
        key = next(iter(several))
        problems.append(Problem(wheres[key], key, why))
        return config
    axes = []
    for key, values in several.items():
        checked = []
        for number, value in enumerate(values):
            try:
                checked.append(checked_value(config, key, value))
            except ConfigError as error:
                if number:  # else it is reported already
                    problems += [Problem(values.places[number], key, text) for text in error.problems]
        axes += [Axis(key=key, values=tuple(checked))] if len(checked) == len(values) else []
    try:
        return replace(config, axes=tuple(axes))
    except ConfigError as error:
        for problem in error.problems:
            prefix, _, text = problem.partition(": ")
            key = prefix if prefix in several else list(several)[-1]
            problems.append(Problem(wheres[key], key, text if prefix in several else problem))
        return None


def _lists(root: Section, problems: list[Problem]) -> Iterator[KeyPath]:
    """The path of every list of values; those with mistakes are reported, and stay for validation to leave out."""
    params, stages = value_at(root, ("objectives", "params")), root.get("stages")
    places: list[KeyPath] = [("objectives", "params", name) for name in (params if isinstance(params, dict) else ())]
    places.append(("objectives", "variant"))
    for index, stage in enumerate(stages if isinstance(stages, list) else ()):
        places += [("stages", index, name) for name in (stage if isinstance(stage, dict) else ())]
    for path in places:
        values, setting, why = value_at(root, path), str(path[-1]), ""
        nested = [isinstance(one, list) for one in values] if isinstance(values, Items) else []
        if not isinstance(values, Items) or (setting in _LISTS and not any(nested)):
            continue  # one value
        if path[0] == "stages" and setting not in OF_ONE_TRAINING:
            why = f"takes one value, not a list; lists may stand for {', '.join(OF_ONE_TRAINING)}"
        elif not values:
            why = "the list of values is empty; it needs at least one"
        elif setting in _LISTS and not all(nested):
            why = "must be a list of numbers, or a list of such lists, not both"
        for text in [why] if why else failures(lambda values=values: distinct(values)):
            why = text
            problems.append(Problem(place_of(root, path), shown(root, path), text))
        if not why:
            yield path
