"""Merge a sweep file over the one it extends, and apply overrides (`--set key=value`)."""

from __future__ import annotations

from typing import Any

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.sweeps.reading.document import Items, KeyPath, Problem, Section, Where, name_of, parse_yaml


def merge(base: Any, over: Any, path: KeyPath = ()) -> Any:
    """Merge `over` into `base`. Each value keeps its place.

    Mappings merge key by key. A list replaces the other list, unless all its items are mappings with a `name` (stages,
    backbones). Those merge by name: items of the same name merge, new ones are appended, and a plain name in the base
    list counts as a mapping with that name. Backbones that only the base has go. A `data` mapping with another `format`
    replaces the whole section, because the keys of one format mean nothing in another. A setting in `tune.space`
    replaces the other's values.
    """
    if isinstance(base, Section) and isinstance(over, Section):
        is_other_data = path == ("data",) and over.get("format", base.get("format")) != base.get("format")
        if is_other_data or (path[:2] == ("tune", "space") and len(path) == 3):
            return over
        merged = Section({**base, **over}, {**base.places, **over.places})
        merged.update({key: merge(base[key], over[key], (*path, key)) for key in base.keys() & over.keys()})
        return merged
    if isinstance(base, Items) and isinstance(over, Items) and over and None not in map(name_of, over):
        base = with_names(base)
        if None not in map(name_of, base):
            return _merge_named(base, over, path)
    return over


def _merge_named(base: Items, over: Items, path: KeyPath) -> Items:
    kept = list(map(name_of, over if path == ("model", "backbones") else base))
    items = [(item, base.places[number]) for number, item in enumerate(base) if name_of(item) in kept]
    known = {name_of(item): number for number, (item, _) in enumerate(items)}
    for number, item in enumerate(over):
        if (here := known.get(name_of(item))) is not None:
            items[here] = merge(items[here][0], item, (*path, here)), over.places[number]
        else:  # a name given twice stays twice, so that validation reports it
            items.append((item, over.places[number]))
    return Items([item for item, _ in items], dict(enumerate(place for _, place in items)))


def with_names(items: Items) -> Items:
    """A list with the mapping that it stands for in the place of each plain name."""
    named = [
        Section({"name": item}, {"name": items.places[number]}) if isinstance(item, str) else item
        for number, item in enumerate(items)
    ]
    return Items(named, items.places)


def apply_override(root: Section, text: str, problems: list[Problem]) -> None:
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
        root.put((*path, *left), value, where)
