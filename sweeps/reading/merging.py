"""Merge a sweep file over the one it extends, and apply overrides (`--set key=value`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.sweeps.reading.document import Document, KeyPath, Problem, Where, name_of, parse_yaml


def merge(base: Document, over: Document, path: KeyPath = ()) -> None:
    """Merge a document into what another has at a path. Each value keeps its place.

    Mappings merge key by key. A list replaces the other list, unless all its items are mappings with a `name` (stages,
    backbones). Those merge by name: items of the same name merge, new ones are appended, and a plain name in the base
    list counts as a mapping with that name. Backbones that only the base has go. A `data` mapping with another `format`
    replaces the whole section, because the keys of one format mean nothing in another. A setting in `tune.space`
    replaces the other's values.
    """
    below, value = base.at(path), over.content
    if isinstance(below, dict) and isinstance(value, dict):
        is_other_data = path == ("data",) and value.get("format", below.get("format")) != below.get("format")
        if not is_other_data and (path[:2] != ("tune", "space") or len(path) != 3):
            for key in value:
                merge(base, over.below((key,)), (*path, key))
            base.places[path] = over.place(())
            return
    if isinstance(below, list) and isinstance(value, list) and value and None not in map(name_of, value):
        old = replace(base.below(path), content=with_names(below))
        if None not in map(name_of, old.content):
            _merge_named(base, old, over, path)
            return
    base.graft(path, over)


def _merge_named(base: Document, old: Document, over: Document, path: KeyPath) -> None:
    kept = set(map(name_of, over.content if path == ("model", "backbones") else old.content))
    numbers = [number for number, item in enumerate(old.content) if name_of(item) in kept]
    merged: list[Any] = [{} for _ in numbers]
    base.put(path, merged)
    for here, number in enumerate(numbers):
        base.graft((*path, here), old.below((number,)))
    known = {name_of(item): here for here, item in enumerate(merged)}
    for number, item in enumerate(over.content):
        here = known.get(name_of(item), len(merged))
        if here == len(merged):  # a name given twice stays twice, so that validation reports it
            merged.append({})
        merge(base, over.below((number,)), (*path, here))


def with_names(items: list[Any]) -> list[Any]:
    """A list with the mapping that it stands for in the place of each plain name."""
    return [{"name": item} if isinstance(item, str) else item for item in items]


def apply_override(root: Document, text: str, problems: list[Problem]) -> None:
    """Replace one value of a sweep by `a.b=value`, where the value is YAML.

    List items are addressed by name or index (`stages.frozen.epochs=2`, `seeds.0=7`). A mapping or list replaces the
    whole old one. An unknown key is set all the same; validation, which knows the keys, reports it.
    """
    key, equals, raw = text.partition("=")
    key, message = key.strip(), ""
    words, where = key.split("."), Where(f"--set {key}")
    path, left = root.resolve(words)
    above = root.at(path)
    if not equals or not all(words):
        where, message = Where(f"--set {key}{equals}"), "write key=value"
    elif key == "extends":
        message = "only a file can extend another; write `extends` into a sweep file instead"
    elif key == "cluster":
        message = "give one setting, such as cluster.slurm.nodes=2"
    elif left and isinstance(above, list):
        known = [name_of(item) or str(index) for index, item in enumerate(above)]
        message = f"{root.shown(path)} has no item {left[0]!r}{nearest(left[0], known)}; it has {', '.join(known)}"
    elif left and above is not None and not isinstance(above, dict):
        message = f"{root.shown(path)} is a single value, there is nothing below it"
    if message:
        problems.append(Problem(where, "", message))
        return
    already = len(problems)
    value = parse_yaml(raw, where.source, problems, lines=False)
    if len(problems) == already:
        root.graft((*path, *left), value)
