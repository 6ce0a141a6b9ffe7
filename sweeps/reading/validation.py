"""Build a dataclass from a tree of YAML values, and report every problem at its own line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goal_sweep.goal_core.basics.errors import ConfigError, nearest
from goal_sweep.sweeps.identity import reader_of
from goal_sweep.sweeps.reading.tree import MAX_PROBLEMS, KeyPath, Node, Problem

T = TypeVar("T")
Schema = Mapping[str, Any]
"""JSON schema: the one record of which keys a file of settings has, and what they may hold."""

_KINDS = {
    "int_type": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
}
"""Kinds of values, by the error that pydantic reports where another kind stands."""


def validate(root: Node, kind: type[T], problems: list[Problem]) -> T | None:
    """Build a dataclass from a tree, strictly.

    Text in place of a number is an error, and so is an unknown key. A whole number may stand for a float.

    Args:
        root: the mapping of the whole file.
        kind: the dataclass; it and the dataclasses in it may check themselves in `__post_init__`.
        problems: receives what is wrong. After the first pass, faulty values are left out and the rest is checked
            again, so that an unrelated mistake does not hide the failure of a check that needs several values. Of
            more than `MAX_PROBLEMS`, the rest is left out.

    Returns:
        The instance, or None when anything is wrong.
    """
    left_out: set[KeyPath] = set()
    unread = {(one.where, one.path.rpartition(".")[2]) for one in problems}  # whose values stand as none
    while True:
        try:
            built: T = reader_of(kind).validate_json(json.dumps(root.plain()), strict=True)
        except ValidationError as failure:
            told = _Failure(root, kind, left_out)
            found = list(told.problems(failure.errors()[: MAX_PROBLEMS + 1]))
            problems.extend(one for _, one in found if (one.where, one.path.rpartition(".")[2]) not in unread)
            pruned = root
            for path in dict.fromkeys(_to_key(path) for path, _ in found if path):
                left_out.add(path)
                if pruned.at(path) is not None:
                    pruned = pruned.put(path, told.stand_in(path))
            if pruned == root or failure.error_count() > MAX_PROBLEMS:
                return None
            root = pruned
        else:
            return None if left_out else built


@dataclass(frozen=True, slots=True)
class _Failure:
    """A tree that could not be read, and how its problems are told."""

    root: Node
    kind: type[Any]
    left_out: set[KeyPath]
    """Keys that the tree has not, or with another value, because they were reported already."""

    def problems(self, errors: Sequence[ErrorDetails]) -> Iterator[tuple[KeyPath, Problem]]:
        """Each problem with the path to leave out, which is empty where a key is missing."""
        wrong_kind: dict[KeyPath, list[str]] = {}
        # Unknown keys first: the key that one was meant for is not missing, too.
        for error in sorted(errors, key=lambda error: error["type"] != "unexpected_keyword_argument"):
            path, sort = self._path(error), error["type"]
            if sort == "unexpected_keyword_argument":
                yield self._unknown_key(path, self._keys(path[:-1]))
            elif sort == "missing" or sort == "union_tag_not_found":
                key, node = str(error["loc"][-1]) if sort == "missing" else "format", _at(self.root, path)
                meant = sort != "missing" and isinstance(node.value, dict) and get_close_matches(key, node.value, 1)
                if meant:
                    yield self._unknown_key((*path, meant[0]), [key])
                elif (*path, key) not in self.left_out:
                    yield (), Problem(node.where, self.root.shown((*path, key)), "this key is missing")
            elif sort in _KINDS:
                wrong_kind.setdefault(path, []).append(_KINDS[sort])
            elif sort == "value_error":
                yield from self._refused(error["ctx"]["error"], path)
            elif sort == "union_tag_invalid":
                yield self._problem((*path, "format"), self._not_listed(error["ctx"]["expected_tags"], path, "format"))
            elif sort == "literal_error":
                yield self._problem(path, self._not_listed(error["ctx"]["expected"], path))
            else:
                yield self._problem(path, error["msg"])
        for path, kinds in wrong_kind.items():
            expected = " or ".join(dict.fromkeys(kinds))
            yield self._problem(path, f"must be {expected}, got {_describe(_at(self.root, path))}")

    def stand_in(self, path: KeyPath) -> Node | None:
        """A number in place of a faulty one that is required, so that the other keys beside it can be checked."""
        owner = self._schema(path[:-1])
        number = owner.get("properties", {}).get(path[-1], {}).get("type") in ("integer", "number")
        return Node(1, _at(self.root, path).where) if number and path[-1] in owner.get("required", ()) else None

    def _problem(self, path: KeyPath, message: str) -> tuple[KeyPath, Problem]:
        return path, Problem(_at(self.root, path).where, self.root.shown(path), message)

    def _path(self, error: ErrorDetails) -> KeyPath:
        """The longest part of the error's key path that exists in the tree, without the names of union members."""
        path: KeyPath = ()
        node, tag = self.root, None
        for part in error["loc"]:
            child = node.child(part)
            if part == tag or child is None:
                tag = None
                continue
            path, node = (*path, part), child
            tag = member.value if (member := node.child("format")) is not None else None
        return path

    def _refused(self, error: Exception, path: KeyPath) -> Iterator[tuple[KeyPath, Problem]]:
        """Place each problem that a check of a whole value has found at the key that it names first."""
        keys = self._keys(path)
        below = [key for key in self.left_out if key[: len(path)] == path and len(key) > len(path)]
        if below and not _at(self.root, path).value:
            return  # all that was written is named as faulty already
        gone = [str(key[len(path)]) for key in below if path or len(key) == 1]
        for text in error.problems if isinstance(error, ConfigError) else [str(error)]:
            if any(re.search(rf"\b{re.escape(key)}\b", text) for key in gone):
                continue  # it is about a value that was left out, so the check saw its default
            target, message = self._target(path, text, keys)
            if target not in self.left_out:  # else the check saw a stand-in, which nobody wrote
                yield self._problem(target, message)

    def _target(self, path: KeyPath, text: str, keys: Sequence[str]) -> tuple[KeyPath, str]:
        """Find the key that a message is about: `a.b: text` names it, otherwise it is the first key mentioned.

        Returns:
            The key's path, and the message without that prefix.
        """
        prefix, colon, rest = text.partition(": ")
        if colon and path and prefix == path[-1]:
            return path, rest
        outright = bool(colon) and prefix.split(".")[0] in keys
        named = prefix.split(".") if outright else [word for word in re.findall(r"\w+", text) if word in keys][:1]
        for number, part in enumerate(named):
            node, dotted = _at(self.root, path), ".".join(named[number:])
            key = int(part) if isinstance(node.value, list) and part.isdecimal() else part
            if node.child(key) is None:
                if node.child(dotted) is not None:  # a key with dots
                    return (*path, dotted), rest
                return path, f"{dotted}: {rest}" if outright else text  # of a default
            path = (*path, key)
        return path, rest if outright else text

    def _not_listed(self, listed: str, path: KeyPath, key: str = "") -> str:
        """Say that a value is none of those that pydantic lists in quotes."""
        node, options = _at(self.root, (*path, key) if key else path), re.findall(r"'([^']*)'", listed)
        hint = nearest(node.value, options) if isinstance(node.value, str) else ""
        return f"must be one of {', '.join(options)}; got {_describe(node)}{hint}"

    def _unknown_key(self, path: KeyPath, keys: Sequence[str]) -> tuple[KeyPath, Problem]:
        hint, owner = nearest(str(path[-1]), keys), path[:-1]
        meant = get_close_matches(str(path[-1]), keys, 1, 0.5)
        self.left_out.update((*owner, key) for key in meant if self.root.at((*owner, key)) is None)
        is_free = len(path) > 1 and isinstance(self._schema(path[:-2]).get("additionalProperties"), dict)
        if not hint and is_free and isinstance(_at(self.root, path).value, dict):
            hint = f"; keys with dots are written as one, such as {'.'.join(map(str, path[-2:]))}"
        valid = f"; valid here: {', '.join(keys)}" if len(keys) > 1 else ""
        return self._problem(path, f"unknown key{hint}{valid}")

    def _keys(self, path: KeyPath) -> list[str]:
        """The keys that a mapping at a path may have; none where any are allowed."""
        return list(self._schema(path).get("properties", ()))

    def _schema(self, path: KeyPath) -> Mapping[str, Any]:
        return schema_at(self.kind, self.root, path)


def _at(root: Node, path: KeyPath) -> Node:
    node = root.at(path)
    assert node is not None, path
    return node


def _to_key(path: KeyPath) -> KeyPath:
    """The path up to its last key, because leaving out an item of a list would move the others."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _describe(node: Node) -> str:
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {value!r}" if isinstance(value, str) else str(value)


@cache
def schema_of(kind: Any) -> Schema:
    """The JSON schema of a dataclass, with the keys that only its file has (`FILE_KEYS`)."""
    schema = reader_of(kind).json_schema()
    return schema | {"properties": {**schema["properties"], **getattr(kind, "FILE_KEYS", {})}}


def schema_at(kind: Any, root: Node, path: KeyPath) -> Schema:
    """The schema of what may stand at a path of a tree; empty where anything may.

    Args:
        kind: the dataclass of the whole tree.
        root: the tree. Where several kinds of values may stand, what stands there tells which is meant.
        path: keys and indices.
    """
    whole, node = schema_of(kind), root
    found = _meant(whole, whole, node)
    for part in path:
        node = node.child(part) or Node(None, node.where)
        below = found.get("items") if isinstance(part, int) else found.get("properties", {}).get(part)
        found = _meant(below or found.get("additionalProperties") or {}, whole, node)
    return found


def _meant(schema: Schema, whole: Schema, node: Node) -> Schema:
    """A schema without references, and of several that of the `format` of a mapping, or else the only mapping."""
    if "$ref" in schema:
        return _meant(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole, node)
    if tags := schema.get("discriminator", {}).get("mapping"):
        tag = node.child("format")
        named = tags.get(tag.value) if tag is not None and isinstance(tag.value, str) else None
        return _meant({"$ref": named}, whole, node) if named else {}
    mappings = [one for one in schema.get("anyOf", ()) if "$ref" in one]
    return _meant(mappings[0], whole, node) if len(mappings) == 1 and isinstance(node.value, dict) else schema
