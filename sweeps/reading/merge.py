"""`extends`: laying one sweep file over another."""

from __future__ import annotations

from sweeps.reading.problems import KeyPath
from sweeps.reading.yaml_source import Node


def merge(base: Node, over: Node, path: KeyPath = ()) -> Node:
    """`over` laid over `base`; each value keeps the file and line it came from.

    Mappings merge key by key. Lists replace, except that a list whose items are all mappings with a `name` (stages,
    backbones) merges by name: items of the same name merge, new ones are appended; a plain name in the base list counts
    as a mapping with that name. A `data` mapping of another `format` replaces, for the keys of one format mean nothing
    in the other.

    Args:
        base: the extended file's value.
        over: the extending file's value.
        path: where both are.
    """
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        if path == ("data",) and _format_differs(base.value, over.value):
            return over
        merged = dict(base.value)
        for key, child in over.value.items():
            merged[key] = merge(base.value[key], child, (*path, key)) if key in base.value else child
        return Node(merged, over.where)
    if isinstance(base.value, list) and isinstance(over.value, list):
        return _merge_named(base, over, path)
    return over


def _format_differs(base: dict[str, Node], over: dict[str, Node]) -> bool:
    return "format" in over and ("format" not in base or base["format"].value != over["format"].value)


def _merge_named(base: Node, over: Node, path: KeyPath) -> Node:
    assert isinstance(base.value, list)
    assert isinstance(over.value, list)
    if not over.value or any(item.item_name is None for item in over.value):
        return over
    items = [as_named(item) for item in base.value]
    positions = {item.item_name: index for index, item in enumerate(items)}
    if None in positions:
        return over
    for item in over.value:
        name = item.item_name
        if name in positions:
            items[positions[name]] = merge(items[positions[name]], item, (*path, positions[name]))
        else:
            # A name given twice stays twice, so that validation reports it.
            items.append(item)
    return Node(items, over.where)


def as_named(item: Node) -> Node:
    """A plain name as the mapping it stands for; anything else unchanged."""
    if isinstance(item.value, str):
        return Node({"name": Node(item.value, item.where)}, item.where)
    return item
