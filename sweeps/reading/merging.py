"""Merge a sweep file over the one it extends, and apply overrides (`--set key=value`)."""

from __future__ import annotations

from typing import Any

from goal_sweep.goal_core.basics.errors import nearest
from goal_sweep.sweeps.reading.document import (
    Items,
    KeyPath,
    Problem,
    Section,
    Where,
    name_of,
    put,
    resolve,
    shown,
    value_at,
)
from goal_sweep.sweeps.reading.yaml_file import MAX_DEPTH, parse_yaml


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
    if isinstance(base, Items) and isinstance(over, Items) and over:
        named = with_names(base)
        names = [name_of(item) for item in named]
        if None not in (*names, *map(name_of, over)):
            return _merge_named(named, names, over, path)
    return over


def _merge_named(base: Items, names: list[str | None], over: Items, path: KeyPath) -> Items:
    kept = [name_of(item) for item in over] if path == ("model", "backbones") else names
    pairs = [(item, base.places[number]) for number, item in enumerate(base) if names[number] in kept]
    known = {name_of(item): number for number, (item, _) in enumerate(pairs)}
    for number, item in enumerate(over):
        if (here := known.get(name_of(item))) is not None:
            pairs[here] = merge(pairs[here][0], item, (*path, here)), over.places[number]
        else:  # a name given twice stays twice, so that validation reports it
            pairs.append((item, over.places[number]))
    return Items([item for item, _ in pairs], dict(enumerate(place for _, place in pairs)))


def with_names(items: Items) -> Items:
    """A list with the mapping that it stands for in the place of each plain name."""
    places = items.places
    named = [
        Section({"name": one}, {"name": places[n]}) if isinstance(one, str) else one for n, one in enumerate(items)
    ]
    return Items(named, places)


def apply_override(root: Section, text: str, problems: list[Problem]) -> None:
    """Replace one value of a sweep.

    Args:
        root: the sweep file, after `extends`.
        text: `a.b=value`, where the value is YAML. List items are addressed by name or index
            (`stages.frozen.epochs=2`, `seeds.0=7`). A mapping or list given as the value replaces the whole old one.
        problems: receives what is wrong with the override. An unknown key is set all the same; validation, which
            knows the keys, reports it under this `--set`.
    """
    key, equals, raw = text.partition("=")
    key = key.strip()
    words, where, message = key.split("."), Where(f"--set {key}"), ""
    path, left = resolve(root, words[: MAX_DEPTH + 1])
    above = value_at(root, path)
    if not equals or not all(words):
        where, message = Where(f"--set {key}{equals}"), "write key=value"
    elif len(words) > MAX_DEPTH:
        where, message = Where(f"--set {key[:40]}..."), f"is nested deeper than {MAX_DEPTH} levels"
    elif key == "extends":
        message = "only a file can extend another; write `extends` into a sweep file instead"
    elif key == "cluster":
        message = "give one setting, such as cluster.slurm.nodes=2"
    elif left and isinstance(above, list):
        known = [name_of(item) or str(index) for index, item in enumerate(above)]
        hint = f"{nearest(left[0], known)}; it has {', '.join(known)}"
        message = f"{shown(root, path)} has no item {left[0]!r}{hint}"
    elif left and above is not None and not isinstance(above, dict):
        message = f"{shown(root, path)} is a single value, there is nothing below it"
    if message:
        problems.append(Problem(where, "", message))
        return
    already = len(problems)
    value = parse_yaml(raw, where.source, problems, lines=False)
    if len(problems) == already:
        put(root, (*path, *left), value, where)
