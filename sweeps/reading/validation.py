"""Build a dataclass from a sweep file by pydantic, and report every problem at its own line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goal_sweep.goal_core.basics.errors import ConfigError, nearest
from goal_sweep.sweeps.identity import reader_of
from goal_sweep.sweeps.reading.document import (
    MAX_PROBLEMS,
    KeyPath,
    Problem,
    Section,
    Where,
    has,
    place_of,
    resolve,
    shown,
    value_at,
)

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


def validate(root: Section, kind: type[T], problems: list[Problem]) -> T | None:
    """Build a dataclass from a file of settings, strictly: text in place of a number is an error.

    Args:
        root: the whole file. It is not changed.
        kind: the dataclass; it and the dataclasses in it may check themselves in `__post_init__`.
        problems: receives what is wrong. After each pass, faulty values are left out and the rest is checked again, so
            that an unrelated mistake does not hide the failure of a check that needs several values.

    Returns:
        What was built from the values that are right; None where too few are.
    """
    told = set(map(_key_of, problems))  # of values that could not be read
    check = _Check(deepcopy(root), kind)
    while True:
        try:
            built: T = reader_of(kind).validate_json(json.dumps(check.root), strict=True)
        except ValidationError as failure:
            before = len(check.gone)
            found = list(check.problems(failure))
            problems += [one for one in found if _key_of(one) not in told]
            if len(check.gone) == before or failure.error_count() > MAX_PROBLEMS:
                return None
        else:
            return built


@dataclass(slots=True)
class _Check:
    """A file while its faulty values are taken out."""

    root: Section
    kind: type[Any]
    gone: set[KeyPath] = field(default_factory=set)
    """What is left out, or has a stand-in, because it was reported."""

    def problems(self, failure: ValidationError) -> Iterator[Problem]:
        """Each problem; the values that cause them are taken out afterwards."""
        kinds: dict[KeyPath, list[str]] = {}
        told: list[tuple[KeyPath, str]] = []
        # Unknown keys first: the key that one was meant for is not missing, too.
        errors = sorted(failure.errors(), key=lambda error: error["type"] != "unexpected_keyword_argument")
        for error in errors[: MAX_PROBLEMS + 1]:
            path = self._path(error)
            if error["type"] in _KINDS:
                kinds.setdefault(path, []).append(_KINDS[error["type"]])
            else:
                told += self._told(error, path)
        for path, several in kinds.items():
            what = " or ".join(dict.fromkeys(several))
            told.append((path, f"must be {what}, got {_described(value_at(self.root, path))}"))
        for path, message in told:
            if path not in self.gone:
                yield Problem(place_of(self.root, path), shown(self.root, path), message)
        for path, _ in told:
            self._take_out(path)

    def _take_out(self, path: KeyPath) -> None:
        while path and isinstance(path[-1], int):  # without an item of a list the others would move
            path = path[:-1]
        owner = value_at(self.root, path[:-1])
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
            if not is_format and has(value_at(self.root, path), part):
                path = (*path, part)
        return path

    def _told(self, error: ErrorDetails, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """Where an error is to be reported, and its message; nothing if it only follows from another."""
        sort, context, value = error["type"], error.get("ctx", {}), value_at(self.root, path)
        if sort == "unexpected_keyword_argument":
            keys, owner, key = self._keys(path[:-1]), value_at(self.root, path[:-1]), str(path[-1])
            # The key that was meant counts as reported, too.
            self.gone |= {(*path[:-1], one) for one in get_close_matches(key, keys, 1, 0.5) if not has(owner, one)}
            yield path, f"unknown key{nearest(key, keys)}; valid here: {', '.join(keys)}"
        elif sort in ("missing", "union_tag_not_found"):
            key = str(error["loc"][-1]) if sort == "missing" else "format"
            meant = get_close_matches(key, value, 1)
            if (*path, key) not in self.gone:
                unknown = f"unknown key (did you mean {key!r}?)"
                yield ((*path, meant[0]), unknown) if meant else ((*path, key), "this key is missing")
        elif sort == "too_short":
            if not value and not any(one[: len(path)] == path for one in self.gone):  # else its items were faulty
                yield path, "must contain at least one"
        elif sort == "value_error":
            yield from self._refused(context["error"], path)
        elif sort in ("literal_error", "union_tag_invalid"):
            path = path if sort == "literal_error" else (*path, "format")
            options = re.findall(r"'([^']*)'", context.get("expected", context.get("expected_tags")))
            value = value_at(self.root, path)
            hint = nearest(value, options) if isinstance(value, str) else ""
            yield path, f"must be one of {', '.join(options)}; got {_described(value)}{hint}"
        else:
            said = re.sub("(Input|String) should", "must", error["msg"])
            yield path, f"{said}, got {_described(value)}"

    def _refused(self, error: Exception, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """What a check of a whole value has found, each at the key that its message names."""
        value, below = value_at(self.root, path), [one for one in self.gone if one[:-1] == path]
        if below and not value:
            self._take_out(path)
            return  # all that was written is named as faulty already
        for text in error.problems if isinstance(error, ConfigError) else [str(error)]:
            if any(re.search(rf"\b{re.escape(str(one[-1]))}\b", text) for one in below):
                continue  # it is about a value that was left out, so the check saw its default
            prefix, colon, rest = text.partition(": ")
            named, left = resolve(value, prefix.split(".")) if colon else ((), [])
            if not named:
                first = next((word for word in re.findall(r"\w+", text) if has(value, word)), None)
                named, left, rest = (() if first is None else (first,)), [], text
            if (*path, *named) not in self.gone:
                yield (*path, *named), f"{'.'.join(left)}: {rest}" if left else rest

    def _keys(self, path: KeyPath) -> list[str]:
        """The keys of the mapping at a path; where several may stand there, of that whose `format` it has."""
        whole = found = schema_of(self.kind)
        for number, part in enumerate(path, start=1):
            found = found["items"] if isinstance(part, int) else found["properties"].get(part, found)
            tag = value_at(self.root, (*path[:number], "format"))
            tagged = found.get("discriminator", {}).get("mapping", {}).get(tag if isinstance(tag, str) else "")
            several = [found, *found.get("anyOf", ()), found.get("additionalProperties") or {}]
            refs = filter(None, [tagged, *(one.get("$ref") for one in several)])
            found = next((whole["$defs"][ref.rpartition("/")[2]] for ref in refs), found)
        return list(found.get("properties", ()))


def _key_of(problem: Problem) -> tuple[Where, str]:
    return problem.where, next((word for word in reversed(problem.path.split(".")) if not word.isdecimal()), "")


def _described(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, str):
        return f"the text {value!r}"
    return "nothing" if value is None else json.dumps(value)


@cache
def schema_of(kind: Any) -> Schema:
    """The JSON schema of a dataclass, with the keys that only its file has (`FILE_KEYS`)."""
    schema = reader_of(kind).json_schema()
    return schema | {"properties": {**schema["properties"], **getattr(kind, "FILE_KEYS", {})}}
