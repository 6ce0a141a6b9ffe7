"""Build a sweep from its file by pydantic, and report every problem at its own line.

Lists in the place of one value become axes: the first value takes the list's place, the others are checked beside it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goal_sweep.goal_core.basics.errors import ConfigError, nearest
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING, StageConfig
from goal_sweep.sweeps.axes import Axis, checked_value
from goal_sweep.sweeps.checks import distinct, failures
from goal_sweep.sweeps.identity import reader_of
from goal_sweep.sweeps.reading.document import Document, KeyPath, Problem, has
from goal_sweep.sweeps.schema import SweepConfig

T = TypeVar("T")
Schema = Mapping[str, Any]
"""JSON schema: the one record of which keys a file of settings has, and what they may hold."""

_KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
}
"""Kinds of values, by the error that pydantic reports where another kind stands."""
_STAND_INS: Mapping[str | int, Any] = {"name": "x", "epochs": 1, "lr": 1, "seeds": [0], "budget": 1}
"""What takes the place of a faulty value that cannot be left out, so that the rest is checked as well."""
_LISTS = [name for name, kind in get_type_hints(StageConfig).items() if get_origin(kind) is tuple]
"""Settings of a stage whose one value is a list already; several values are a list of lists."""


def validate(root: Document, kind: type[T], problems: list[Problem]) -> T | None:
    """Build a dataclass from a file of settings, strictly: text in place of a number is an error.

    After each pass, faulty values are left out and the rest is checked again, so that one mistake does not hide the
    failure of a check that needs several values. What is right is returned; None where that is too little.
    """
    check = _Check(replace(root, content=deepcopy(root.content)), kind)
    while True:
        try:
            built: T = reader_of(kind).validate_json(json.dumps(check.root.content), strict=True)
            return built
        except ValidationError as failure:
            before = len(check.gone)
            problems += list(check.problems(failure))
            if len(check.gone) == before:
                return None


@dataclass(slots=True)
class _Check:
    """A file while its faulty values are taken out."""

    root: Document
    kind: Any
    gone: set[KeyPath] = field(default_factory=set)
    """What is left out, or has a stand-in, because it was reported."""

    def problems(self, failure: ValidationError) -> Iterator[Problem]:
        """Each problem; the values that cause them are taken out afterwards."""
        told: list[tuple[KeyPath, str]] = []
        kinds: dict[KeyPath, dict[str, None]] = {}
        # Unknown keys first: the key that one was meant for is not missing, too.
        errors = sorted(failure.errors(), key=lambda error: error["type"] != "unexpected_keyword_argument")
        for error in errors:
            path = self._path(error)
            if error["type"] in _KINDS:
                kinds.setdefault(path, {})[_KINDS[error["type"]]] = None
            else:
                told += self._told(error, path)
        told += [
            (path, f"must be {' or '.join(several)}, got {self._described(path)}") for path, several in kinds.items()
        ]
        for path, message in told:
            if path not in self.gone:
                yield Problem(self.root.place(path), self.root.shown(path), message)
        for path, _ in told:
            self._take_out(path)

    def _take_out(self, path: KeyPath) -> None:
        while path and isinstance(path[-1], int):  # without an item of a list the others would move
            path = path[:-1]
        owner = self.root.at(path[:-1])
        if path and has(owner, path[-1]):
            if path not in self.gone and path[-1] in _STAND_INS:
                owner[path[-1]] = _STAND_INS[path[-1]]
            else:
                del owner[path[-1]]
            self.gone.add(path)

    def _path(self, error: ErrorDetails) -> KeyPath:
        """The part of the error's key path that exists in the file, without the names of union members."""
        path: KeyPath = ()
        for number, part in enumerate(error["loc"]):
            is_format = number == 1 and path == ("data",)  # by which pydantic names the kind of the data
            if not is_format and has(self.root.at(path), part):
                path = (*path, part)
        return path

    def _told(self, error: ErrorDetails, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """Where an error is to be reported, and its message; nothing if it only follows from another."""
        sort, context, value = error["type"], error.get("ctx", {}), self.root.at(path)
        if sort == "unexpected_keyword_argument":
            keys, owner, key = self._keys(path[:-1]), self.root.at(path[:-1]), str(path[-1])
            # The key that was meant counts as reported, too.
            self.gone |= {(*path[:-1], one) for one in get_close_matches(key, keys, 1, 0.5) if not has(owner, one)}
            yield path, f"unknown key{nearest(key, keys)}; valid here: {', '.join(keys)}"
        elif sort in ("missing", "union_tag_not_found"):
            yield (*path, str(error["loc"][-1]) if sort == "missing" else "format"), "this key is missing"
        elif sort == "too_short":
            if not value and not any(one[: len(path)] == path for one in self.gone):  # else its items were faulty
                yield path, "must contain at least one"
        elif sort == "value_error":
            yield from self._refused(context["error"], path)
        elif listed := context.get("expected", context.get("expected_tags")):
            path = path if sort == "literal_error" else (*path, "format")
            hint = nearest(str(self.root.at(path)), re.findall(r"'([^']*)'", listed))
            yield path, f"must be one of {listed}, got {self._described(path)}{hint}"
        else:
            yield path, f"{re.sub('(Input|String) should', 'must', error['msg'])}, got {self._described(path)}"

    def _refused(self, error: Exception, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """What a check of a whole value has found, each at the key that its message names."""
        value, below = self.root.at(path), [one for one in self.gone if one[:-1] == path]
        if below and not value:
            self._take_out(path)
            return  # all that was written is named as faulty already
        for text in error.problems if isinstance(error, ConfigError) else [str(error)]:
            if any(re.search(rf"\b{re.escape(str(one[-1]))}\b", text) for one in below):
                continue  # it is about a value that was left out, so the check saw its default
            prefix, colon, rest = text.partition(": ")
            named, left = self.root.resolve(prefix.split(".") if colon else (), path)
            if named == path:
                first = next((word for word in re.findall(r"\w+", text) if has(value, word)), None)
                named, left, rest = path if first is None else (*path, first), (), text
            yield named, f"{'.'.join(left)}: {rest}" if left else rest

    def _keys(self, path: KeyPath) -> list[str]:
        """The keys of the mapping at a path; where several may stand there, of that whose `format` it has."""
        whole = found = schema_of(self.kind)
        for number, part in enumerate(path, start=1):
            found = found["items"] if isinstance(part, int) else found["properties"].get(part, found)
            tags, tag = found.get("discriminator", {}).get("mapping", {}), self.root.at((*path[:number], "format"))
            several = [found, *found.get("anyOf", ()), found.get("additionalProperties") or {}]
            refs = [tags.get(str(tag)), *(one.get("$ref") for one in several)]
            found = next((whole["$defs"][ref.rpartition("/")[2]] for ref in refs if ref), found)
        return list(found.get("properties", ()))

    def _described(self, path: KeyPath) -> str:
        value = self.root.at(path)
        if isinstance(value, dict | list):
            mend = f"; write [{{name: {next(iter(value))}, ...}}]" if path == ("stages",) and value else ""
            return f"a mapping{mend}" if isinstance(value, dict) else "a list"
        return "nothing" if value is None else f"the text {value!r}" if isinstance(value, str) else json.dumps(value)


@cache
def schema_of(kind: Any) -> Schema:
    """The JSON schema of a dataclass, with the keys that only its file has (`FILE_KEYS`)."""
    schema = reader_of(kind).json_schema()
    return schema | {"properties": {**schema["properties"], **getattr(kind, "FILE_KEYS", {})}}


def validate_lists(root: Document, problems: list[Problem]) -> SweepConfig | None:
    """Build the sweep, and check each value of each list as if it stood alone, then all that go together.

    If `problems` receives any, the result means nothing.
    """
    lists = {path: root.at(path) for path in _lists(root, problems)}
    for path, values in lists.items():
        root.put(path, values[0])
    several = {root.shown(path): values for path, values in lists.items() if len(values) > 1}
    paths = {root.shown(path): path for path in lists}
    config = validate(root, SweepConfig, problems)
    if config is None or not several:
        return config
    for key, number, value in ((key, number, one) for key, own in several.items() for number, one in enumerate(own)):
        if number:  # the first value was checked with the sweep
            texts = failures(checked_value, config, key, value)
            problems += [Problem(root.place((*paths[key], number)), key, text) for text in texts]
    if problems:
        return config
    made = ((key, [checked_value(config, key, value) for value in values]) for key, values in several.items())
    try:
        return replace(config, axes=tuple(Axis(key=key, values=tuple(values)) for key, values in made))
    except ConfigError as error:
        for problem in error.problems:
            key, _, text = problem.partition(": ")
            key, text = (key, text) if key in several else (list(several)[-1], problem)
            problems.append(Problem(root.place(paths[key]), key, text))
        return config


def _lists(root: Document, problems: list[Problem]) -> Iterator[KeyPath]:
    """The path of every list of values; those with mistakes are reported and taken out."""
    params, stages = root.at(("objectives", "params")), root.at(("stages",))
    places: list[KeyPath] = [("objectives", "params", name) for name in (params if isinstance(params, dict) else ())]
    places += [("objectives", "variant"), ("precision",)]
    for index, stage in enumerate(stages if isinstance(stages, list) else ()):
        places += [("stages", index, name) for name in (stage if isinstance(stage, dict) else ())]
    for path in places:
        values, setting = root.at(path), str(path[-1])
        nested = [isinstance(one, list) for one in values] if isinstance(values, list) else []
        if not isinstance(values, list) or (setting in _LISTS and not any(nested)):
            continue  # one value
        wrong = list(failures(distinct, values))
        if path[0] == "stages" and setting not in OF_ONE_TRAINING:
            wrong = [f"takes one value, not a list; lists may stand for {', '.join(OF_ONE_TRAINING)}"]
        elif not values:
            wrong = ["the list of values is empty; it needs at least one"]
        elif setting in _LISTS and not all(nested):
            wrong = ["must be a list of numbers, or a list of such lists, not both"]
        problems += [Problem(root.place(path), root.shown(path), text) for text in wrong]
        if not wrong:
            yield path
        elif setting in _STAND_INS:
            root.put(path, _STAND_INS[setting])
        else:
            del root.at(path[:-1])[setting]
