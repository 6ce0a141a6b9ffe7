"""Build a dataclass from a tree of YAML values, and report every problem at its own line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from goal_core.basics.errors import nearest
from sweeps.identity import NO_KEY, reader_of
from sweeps.reading.tree import MAX_PROBLEMS, KeyPath, Node, Problem

T = TypeVar("T")

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
_ITEM = {tuple: 0, Mapping: 1}
"""Where the type of an item stands among the arguments of a container's type."""


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
    while True:
        try:
            built: T = reader_of(kind).validate_json(json.dumps(root.plain()), strict=True)
        except ValidationError as failure:
            told = list(_Failure(root, kind, left_out).problems(failure.errors()[: MAX_PROBLEMS + 1]))
            problems.extend(problem for _, problem in told)
            pruned = root
            for path in dict.fromkeys(_to_key(path) for path, _ in told if path):
                left_out.add(path)
                if pruned.at(path) is not None:
                    pruned = pruned.put(path, _stand_in(kind, root, path))
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
        for error in errors:
            path, sort = self._path(error), error["type"]
            if sort == "missing" or sort == "union_tag_not_found":
                key = error["loc"][-1] if sort == "missing" else "format"
                if (*path, key) not in self.left_out:
                    where = _at(self.root, path).where
                    yield (), Problem(where, self.root.shown((*path, key)), "this key is missing")
            elif sort == "unexpected_keyword_argument":
                yield self._problem(path, self._unknown_key(path))
            elif sort in _KINDS:
                wrong_kind.setdefault(path, []).append(_KINDS[sort])
            elif sort == "value_error":
                yield from self._refused(str(error["ctx"]["error"]), path)
            elif sort == "union_tag_invalid":
                yield self._problem((*path, "format"), self._not_listed(error["ctx"]["expected_tags"], path, "format"))
            elif sort == "literal_error":
                yield self._problem(path, self._not_listed(error["ctx"]["expected"], path))
            else:
                yield self._problem(path, error["msg"])
        for path, kinds in wrong_kind.items():
            expected = " or ".join(dict.fromkeys(kinds))
            yield self._problem(path, f"must be {expected}, got {_describe(_at(self.root, path))}")

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

    def _refused(self, text: str, path: KeyPath) -> Iterator[tuple[KeyPath, Problem]]:
        """Split the message of a check of a whole value into its parts, and place each at the key it names first."""
        keys = _keys_at(self.kind, self.root, path)
        below = [key for key in self.left_out if key[: len(path)] == path and len(key) > len(path)]
        if below and not _at(self.root, path).value:
            return  # all that was written is named as faulty already
        gone = [str(key[len(path)]) for key in below if path or len(key) == 1]
        for part in re.split(rf"; (?=(?:{'|'.join(map(re.escape, keys))})\b)", text) if keys else [text]:
            if any(re.search(rf"\b{re.escape(key)}\b", part) for key in gone):
                continue  # this part is about a value that was left out, so the check saw its default
            target, message = self._target(path, part, keys)
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

    def _unknown_key(self, path: KeyPath) -> str:
        keys = [*_keys_at(self.kind, self.root, path[:-1])]
        keys += getattr(self.kind, "FILE_KEYS", ()) if len(path) == 1 else ()
        hint = nearest(str(path[-1]), keys)
        if not hint and len(path) > 1 and get_origin(_type_at(self.kind, self.root, path[:-2])) is Mapping:
            hint = f"; keys with dots are written as one, such as {'.'.join(map(str, path[-2:]))}"
        return f"unknown key{hint}; valid here: {', '.join(keys)}"


def _at(root: Node, path: KeyPath) -> Node:
    node = root.at(path)
    assert node is not None, path
    return node


def _to_key(path: KeyPath) -> KeyPath:
    """The path up to its last key, because leaving out an item of a list would move the others."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _stand_in(kind: type[Any], root: Node, path: KeyPath) -> Node | None:
    """A number in place of a faulty one that its dataclass requires, so that the other fields can be checked."""
    owner = _type_at(kind, root, path[:-1])
    for item in fields(owner) if is_dataclass(owner) else ():
        if item.name == path[-1] and item.default is MISSING and item.default_factory is MISSING:
            return Node(1, _at(root, path).where) if get_type_hints(owner)[item.name] in (int, float) else None
    return None


def _keys_at(kind: type[Any], root: Node, path: KeyPath) -> Sequence[str]:
    """The keys that a mapping at `path` may have; empty where no dataclass is expected."""
    owner = _type_at(kind, root, path)
    return [item.name for item in fields(owner) if NO_KEY not in item.metadata] if is_dataclass(owner) else ()


def _type_at(kind: Any, root: Node, path: KeyPath) -> Any:
    """The type expected at `path`; None below a value that is neither a dataclass nor a tuple."""
    node = root
    kind = _choose(kind, node)
    for part in path:
        node = _at(node, (part,))
        if is_dataclass(kind):
            kind = get_type_hints(kind).get(str(part))
        else:
            kind = get_args(kind)[_ITEM[get_origin(kind)]] if get_origin(kind) in _ITEM else None
        kind = _choose(kind, node)
    return kind


def _choose(kind: Any, node: Node) -> Any:
    """Choose the member of a union that a mapping stands for: the only dataclass, or else that of its `format`.

    Other types are left unchanged.
    """
    members = [member for member in get_args(kind) if is_dataclass(member)]
    if len(members) == 1 and get_origin(kind) in (Union, UnionType) and isinstance(node.value, dict):
        return members[0]
    tag = node.child("format")
    if get_origin(kind) in _ITEM or not members or tag is None:
        return kind
    return next((member for member in members if tag.value in get_args(get_type_hints(member)["format"])), kind)


def _describe(node: Node) -> str:
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {value!r}" if isinstance(value, str) else str(value)
