"""Merge a sweep file over the one it extends, and apply overrides (`--set key=value`)."""

from __future__ import annotations

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.sweeps.reading.tree import KeyPath, Node, Problem, Where
from goal_sweep.sweeps.reading.yaml_file import MAX_DEPTH, parse_yaml


def merge(base: Node, over: Node, path: KeyPath = ()) -> Node:
    """Merge `over` into `base`. Each value keeps the file and line it came from.

    Mappings merge key by key. A list replaces the other list, unless all its items are mappings with a `name` (stages,
    backbones). Those merge by name: items of the same name merge, new ones are appended, and a plain name in the base
    list counts as a mapping with that name. Backbones that only the base has go. A `data` mapping with another `format`
    replaces the whole section, because the keys of one format mean nothing in another. A setting in `tune.space`
    replaces the other's values.

    Args:
        base: the value in the extended file.
        over: the value in the extending file.
        path: where both values are.
    """
    if isinstance(base.value, dict) and isinstance(over.value, dict):
        if path == ("data",) and _format_differs(base.value, over.value):
            return over
        if path[:2] == ("tune", "space") and len(path) == 3:  # one word with its values
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
    if path == ("model", "backbones"):  # whose weights may lie where this sweep never looks
        wanted = {item.item_name for item in over.value}
        items = [item for item in items if item.item_name in wanted]
    return Node(items, over.where)


def as_named(item: Node) -> Node:
    """Turn a plain name into the mapping that it stands for; return anything else unchanged."""
    if isinstance(item.value, str):
        return Node({"name": Node(item.value, item.where)}, item.where)
    return item


def apply_override(root: Node, text: str, problems: list[Problem]) -> Node:
    """Replace one value of the tree.

    Args:
        root: the sweep file, after `extends`.
        text: `a.b=value`, where the value is YAML. List items are addressed by name or index
            (`stages.frozen.epochs=2`, `seeds.0=7`). A mapping or list given as the value replaces the whole old one.
        problems: receives what is wrong with the override. An unknown key is set all the same; validation, which
            knows the keys, reports it under this `--set`.

    Returns:
        The new tree.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    where = Where(f"--set {key}")
    if not equals or not all(key.split(".")):
        problems.append(Problem(Where(f"--set {text}" if not equals else f"--set {key}="), "", "write key=value"))
        return root
    if key.count(".") >= MAX_DEPTH:
        problems.append(Problem(Where(f"--set {key[:40]}..."), "", f"is nested deeper than {MAX_DEPTH} levels"))
        return root
    if key == "extends":
        problems.append(Problem(where, "", "only a file can extend another; write `extends` into a sweep file instead"))
        return root
    already = len(problems)
    value = parse_yaml(raw, where.source, problems, at=where) or Node(None, where)
    path = address(root, key.split("."), where, problems)
    return root if path is None or len(problems) > already else root.put(path, Node(value.value, where))


def address(root: Node, words: list[str], where: Where, problems: list[Problem]) -> KeyPath | None:
    """The path that the words of a dotted key stand for; None, and a problem, where there is no such place."""
    path: KeyPath = ()
    node: Node | None = root
    while words:
        part: str | int = words[0]
        used = 1
        if node is not None and isinstance(node.value, list):
            part, used = _find_item(node.value, words)
            if not used:
                names = [item.item_name for item in node.value if item.item_name]
                known = names or [str(index) for index in range(len(node.value))]
                hint = f"{nearest(words[0], known)}; it has {', '.join(known)}"
                problems.append(Problem(where, "", f"{root.shown(path)} has no item {words[0]!r}{hint}"))
                return None
        elif node is not None and node.value is not None and not isinstance(node.value, dict):
            problems.append(Problem(where, "", f"{root.shown(path)} is a single value, there is nothing below it"))
            return None
        path, words = (*path, part), words[used:]
        node = node.child(part) if node is not None else None
    return path


def _find_item(items: list[Node], words: list[str]) -> tuple[int, int]:
    """Find the addressed item: its index and how many words address it; (0, 0) when there is none."""
    # A name may contain dots (`resnet50.a1_in1k`), so the longest run of words that is a name counts.
    for used in range(len(words), 0, -1):
        for index, item in enumerate(items):
            if item.item_name == ".".join(words[:used]):
                return index, used
    if words[0].isdecimal() and int(words[0]) < len(items):
        return int(words[0]), 1
    return 0, 0
