"""Lists in the place of one value: take them out of a sweep's tree, and check every value at its own line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from math import prod
from typing import Any, Final, cast, get_origin, get_type_hints

from goal_core.basics.errors import ConfigError
from goal_core.training.config import OF_ONE_TRAINING, StageConfig
from sweeps.axes import MAX_CELLS, Axis, AxisValue
from sweeps.reading.validation import validate
from sweeps.reading.yaml_source import KeyPath, Node, Problem, Where
from sweeps.schema import SweepConfig

_STAGE_SETTINGS: Final = tuple(item.name for item in fields(StageConfig))
_LISTS: Final = frozenset(name for name, kind in get_type_hints(StageConfig).items() if get_origin(kind) is tuple)
"""Settings whose one value is a list already; several values are a list of lists."""

_REQUIRED: Final = tuple(item.name for item in fields(StageConfig) if item.default is MISSING)


@dataclass(frozen=True, slots=True)
class AxisList:
    """The values of one setting, as written."""

    path: KeyPath
    key: str
    """As `Axis.key`."""
    values: tuple[Node, ...]
    where: Where


def take_lists(root: Node, problems: list[Problem]) -> tuple[Node, list[AxisList]]:
    """Put the first value in the place of every list of values.

    Args:
        root: the sweep file, complete.
        problems: receives lists where one value must stand, empty lists, and values given twice.

    Returns:
        The tree with one value for every setting, and the lists with more.
    """
    lists: list[AxisList] = []
    if isinstance(root.value, dict) and "axes" in root.value:
        message = "unknown key; write a list of values in the place of the setting, such as objectives.params.tau"
        problems.append(Problem(root.value["axes"].where, "axes", message))
        root = _put(root, ("axes",), None)
    for path, key, node in list(_candidates(root)):
        setting = str(path[-1])
        assert isinstance(node.value, list)
        if setting in _LISTS and not any(isinstance(item.value, list) for item in node.value):
            continue  # one value, which is a list
        values = _distinct(node, key, problems)
        if setting in _LISTS and not all(isinstance(item.value, list) for item in node.value):
            problems.append(Problem(node.where, key, "must be a list of numbers, or a list of such lists, not both"))
            values = []
        elif not values:
            problems.append(Problem(node.where, key, "the list of values is empty; it needs at least one"))
        elif path[0] == "stages" and setting not in OF_ONE_TRAINING:
            can = ", ".join(OF_ONE_TRAINING)
            problems.append(Problem(node.where, key, f"takes one value, not a list; lists may stand for {can}"))
        elif len(values) > 1:
            lists.append(AxisList(path, key, tuple(values), node.where))
        root = _put(root, path, values[0] if values else _stand_in(setting, node.where))
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
    points = prod(len(one.values) for one in lists)
    cells = 1 if config is None else _num_cells(config)
    if points * cells > MAX_CELLS:
        message = f"the lists make {points:,} points of {cells:,} cells each, {points * cells:,} in all"
        problems.append(Problem(lists[0].where, lists[0].key, f"{message}; a sweep may have {MAX_CELLS:,}"))
        return None
    axes = []
    for one in lists:
        found = [validate(_put(root, one.path, node), SweepConfig, problems) for node in one.values]
        if all(of_value is not None for of_value in found):
            values = tuple(_value(of_value, one.path) for of_value in found)
            axes.append(Axis(key=one.key, values=values))
    if config is None or len(axes) < len(lists):
        return None
    try:
        return replace(config, axes=tuple(axes))
    except ConfigError as error:
        key, colon, text = str(error).partition(": ")
        named = next((one for one in lists if one.key == key), None)
        at = named or lists[-1]
        problems.append(Problem(at.where, at.key, text if named and colon else str(error)))
        return None


def _num_cells(config: SweepConfig) -> int:
    return len(config.model.backbones) * len(config.seeds) * len(config.objectives.names)


def _candidates(root: Node) -> Iterator[tuple[KeyPath, str, Node]]:
    """Every list that stands where a list of values may stand, with its path and its key."""
    variant = ("objectives", "variant")
    params = _children(root, ("objectives", "params"))
    for path in (*(("objectives", "params", name) for name in params), variant):
        if path[1] in _children(root, ("objectives",)):
            yield from _if_list(root, path, ".".join(path))
    stages = root.value["stages"].value if isinstance(root.value, dict) and "stages" in root.value else None
    for number, stage in enumerate(stages if isinstance(stages, list) else ()):
        if isinstance(stage.value, dict) and stage.item_name:
            for setting in stage.value:
                if setting in _STAGE_SETTINGS:
                    yield from _if_list(root, ("stages", number, setting), f"stages.{stage.item_name}.{setting}")


def _stand_in(setting: str, where: Where) -> Node | None:
    """What stands for an empty list, so that the rest can be checked: nothing where the setting has a default."""
    return Node(1, where) if setting in _REQUIRED else None


def _children(root: Node, path: KeyPath) -> Sequence[str]:
    node = _at(root, path)
    return list(node.value) if node is not None and isinstance(node.value, dict) else []


def _if_list(root: Node, path: KeyPath, key: str) -> Iterator[tuple[KeyPath, str, Node]]:
    node = _at(root, path)
    if node is not None and isinstance(node.value, list):
        yield path, key, node


def _at(root: Node, path: KeyPath) -> Node | None:
    node: Node | None = root
    for part in path:
        if node is None:
            return None
        if isinstance(node.value, dict):
            node = node.value.get(str(part))
        else:
            node = node.value[part] if isinstance(node.value, list) and isinstance(part, int) else None
    return node


def _distinct(node: Node, key: str, problems: list[Problem]) -> list[Node]:
    """The items of a list without those that repeat one; `1` and `1.0` are the same."""
    seen: dict[str, Node] = {}
    assert isinstance(node.value, list)
    for item in node.value:
        plain = item.plain()
        same = repr(float(plain) if isinstance(plain, int) and not isinstance(plain, bool) else plain)
        if same in seen:
            problems.append(Problem(item.where, key, f"{plain} is given twice"))
        seen.setdefault(same, item)
    return list(seen.values())


def _put(node: Node, path: KeyPath, value: Node | None) -> Node:
    """Copy a tree with another value at a path that it has; None removes the key."""
    if not path:
        assert value is not None
        return value
    head, rest = path[0], path[1:]
    if isinstance(node.value, list):
        items = list(node.value)
        items[cast(int, head)] = _put(items[cast(int, head)], rest, value)
        return Node(items, node.where)
    assert isinstance(node.value, dict)
    children = dict(node.value)
    if not rest and value is None:
        del children[str(head)]
    else:
        children[str(head)] = _put(children[str(head)], rest, value)
    return Node(children, node.where)


def _value(config: Any, path: KeyPath) -> AxisValue:
    """The checked value at a path of the tree."""
    for part in path:
        if isinstance(part, int):
            config = config[part]
        else:
            config = config[part] if isinstance(config, dict) else getattr(config, part)
    return cast(AxisValue, config)
