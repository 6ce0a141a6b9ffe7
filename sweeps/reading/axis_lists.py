"""Lists in the place of one value: take them out of a sweep's tree, and check every value at its own line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from math import prod
from typing import Any, Final, cast, get_origin, get_type_hints

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING, StageConfig
from goal_sweep.sweeps.axes import Axis, AxisValue, too_many_cells
from goal_sweep.sweeps.reading.tree import KeyPath, Node, Problem
from goal_sweep.sweeps.reading.validation import validate
from goal_sweep.sweeps.schema import SweepConfig

_STAGE_SETTINGS: Final = {item.name: item for item in fields(StageConfig)}
_LISTS: Final = frozenset(name for name, kind in get_type_hints(StageConfig).items() if get_origin(kind) is tuple)
"""Settings whose one value is a list already; several values are a list of lists."""


@dataclass(frozen=True, slots=True)
class AxisList:
    """The values of one setting, as written."""

    path: KeyPath
    key: str
    """As `Axis.key`."""
    values: tuple[Node, ...]
    node: Node
    """The list."""


def take_lists(root: Node, problems: list[Problem]) -> tuple[Node, list[AxisList]]:
    """Put the first value in the place of every list of values.

    Args:
        root: the sweep file, complete.
        problems: receives lists where one value must stand, empty lists, and values given twice.

    Returns:
        The tree with one value for every setting, and the lists with more.
    """
    lists: list[AxisList] = []
    if (axes := root.child("axes")) is not None:
        message = "unknown key; write a list of values in the place of the setting, such as objectives.params.tau"
        problems.append(Problem(axes.where, "axes", message))
        root = root.put(("axes",), None)
    for path, node in list(_lists(root)):
        setting, key = str(path[-1]), root.shown(path)
        assert isinstance(node.value, list)
        nested = [isinstance(item.value, list) for item in node.value]
        if setting in _LISTS and not any(nested):
            continue  # one value, which is a list
        values = list(_distinct(node, key, problems))
        if setting in _LISTS and not all(nested):
            problems.append(Problem(node.where, key, "must be a list of numbers, or a list of such lists, not both"))
            values = []
        elif not values:
            problems.append(Problem(node.where, key, "the list of values is empty; it needs at least one"))
        elif path[0] == "stages" and setting not in OF_ONE_TRAINING:
            can = ", ".join(OF_ONE_TRAINING)
            problems.append(Problem(node.where, key, f"takes one value, not a list; lists may stand for {can}"))
        elif len(values) > 1:
            lists.append(AxisList(path, key, tuple(values), node))
        # Without a value the rest is checked all the same: with the default, or 1 where there is none.
        required = path[0] == "stages" and _STAGE_SETTINGS[setting].default is MISSING
        root = root.put(path, values[0] if values else Node(1, node.where) if required else None)
    return root, lists


def validate_points(root: Node, lists: Sequence[AxisList], problems: list[Problem]) -> SweepConfig | None:
    """Build the sweep, and check each value of each list as if it stood alone, then all that go together.

    Args:
        root: the tree with one value for every setting.
        lists: the settings with more.
        problems: receives what is wrong.

    Returns:
        The sweep with its axes, or None when anything is wrong.
    """
    config = validate(root, SweepConfig, problems)
    if not lists:
        return config
    if why := too_many_cells(prod(len(axis.values) for axis in lists), 1 if config is None else config.num_cells):
        problems.append(Problem(lists[0].node.where, lists[0].key, why))
        return None
    axes = []
    for axis in lists:
        built = [validate(root.put(axis.path, node), SweepConfig, problems) for node in axis.values]
        if all(of_value is not None for of_value in built):
            axes.append(Axis(key=axis.key, values=tuple(_value(of_value, axis.path) for of_value in built)))
    if config is None or len(axes) < len(lists):
        return None
    try:
        return replace(config, axes=tuple(axes))
    except ConfigError as error:
        key, colon, text = str(error).partition(": ")
        named = next((axis for axis in lists if colon and axis.key == key), None)
        at = named or lists[-1]
        problems.append(Problem(at.node.where, at.key, text if named else str(error)))
        return None


def _lists(root: Node) -> Iterator[tuple[KeyPath, Node]]:
    """Every list that stands where a list of values may stand, with its path."""
    params, stages = root.at(("objectives", "params")), root.child("stages")
    places: list[KeyPath] = []
    if params is not None and isinstance(params.value, dict):
        places += [("objectives", "params", name) for name in params.value]
    places.append(("objectives", "variant"))
    for index, stage in enumerate(stages.value if stages is not None and isinstance(stages.value, list) else ()):
        if isinstance(stage.value, dict) and stage.item_name:
            places += [("stages", index, setting) for setting in stage.value if setting in _STAGE_SETTINGS]
    for path in places:
        node = root.at(path)
        if node is not None and isinstance(node.value, list):
            yield path, node


def _distinct(node: Node, key: str, problems: list[Problem]) -> Iterator[Node]:
    """The items of a list without those that repeat one; `1` and `1.0` are the same."""
    seen: set[str] = set()
    assert isinstance(node.value, list)
    for item in node.value:
        plain = item.plain()
        same = repr(float(plain) if isinstance(plain, int) and not isinstance(plain, bool) else plain)
        if same in seen:
            problems.append(Problem(item.where, key, f"{plain} is given twice"))
        else:
            seen.add(same)
            yield item


def _value(config: Any, path: KeyPath) -> AxisValue:
    """The checked value at a path of the tree."""
    for part in path:
        config = config[part] if isinstance(part, int) or isinstance(config, dict) else getattr(config, part)
    return cast(AxisValue, config)
