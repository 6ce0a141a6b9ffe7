"""Build a dataclass from a tree of YAML values, and report every problem at its own line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from goal_core.basics.errors import nearest
from sweeps.identity import NO_KEY
from sweeps.reading.yaml_source import MAX_PROBLEMS, KeyPath, Node, Problem, Where

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


_ITEM = {tuple: 0, Mapping: 1}
"""Where the type of an item stands among the arguments of a container's type."""
_UNIONS = (Union, UnionType)


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
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a class can be hashed
    left_out: set[KeyPath] = set()
    while True:
        try:
            built = adapter.validate_json(json.dumps(root.plain()), strict=True)
        except ValidationError as failure:
            found = _translate(failure, root, kind, left_out)
            problems.extend(problem for _, problem in found)
            if failure.error_count() > MAX_PROBLEMS:
                return None
            gone = {_to_key(path): _stand_in(kind, root, _to_key(path)) for path, _ in found if path}
            pruned = _without(root, (), gone)
            left_out |= gone.keys()
            if pruned == root:
                return None
            root = pruned
        else:
            return None if left_out else built


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """The reader of a class: to build one takes longer than to read a sweep with it."""
    return TypeAdapter(kind)


def _translate(
    failure: ValidationError, root: Node, kind: type[Any], left_out: set[KeyPath]
) -> list[tuple[KeyPath, Problem]]:
    """Turn each error into (key path to leave out, problem); the path is empty where there is nothing to leave out."""
    wrong_type: dict[KeyPath, list[str]] = {}
    found: list[tuple[KeyPath, Problem]] = []
    for error in failure.errors()[: MAX_PROBLEMS + 1]:
        path = _path_in(root, error)
        node = _at(root, path)
        if error["type"] == "missing":
            if (*path, error["loc"][-1]) not in left_out:
                found.append(((), _problem(root, (*path, error["loc"][-1]), node.where, "this key is missing")))
        elif error["type"] == "union_tag_not_found" and (*path, "format") not in left_out:
            found.append(((), _problem(root, (*path, "format"), node.where, "this key is missing")))
        elif error["type"] == "unexpected_keyword_argument":
            found.append((path, _problem(root, path, node.where, _unknown_key(kind, root, path))))
        elif error["type"] in _KINDS:
            wrong_type.setdefault(path, []).append(_KINDS[error["type"]])
        elif error["type"] == "value_error":
            found.extend(_value_problems(error, root, kind, path, left_out))
        elif error["type"] == "union_tag_invalid":
            target = (*path, "format")
            found.append((target, _problem(root, target, _at(root, target).where, _message(error, _at(root, target)))))
        elif error["type"] != "union_tag_not_found":
            found.append((path, _problem(root, path, node.where, _message(error, node))))
    for path, kinds in wrong_type.items():
        node = _at(root, path)
        expected = " or ".join(dict.fromkeys(kinds))
        found.append((path, _problem(root, path, node.where, f"must be {expected}, got {_describe(node)}")))
    return found


def _value_problems(
    error: ErrorDetails, root: Node, kind: type[Any], path: KeyPath, left_out: set[KeyPath]
) -> list[tuple[KeyPath, Problem]]:
    """Split the message of a check of a whole value into its parts, and place each at the key that it names first."""
    keys = _keys_at(kind, root, path)
    text = str(error["ctx"]["error"])
    parts = re.split(rf"; (?=(?:{'|'.join(map(re.escape, keys))})\b)", text) if keys else [text]
    below = [key for key in left_out if key[: len(path)] == path and len(key) > len(path)]
    if below and not _at(root, path).value:
        return []  # all that was written is named as faulty already
    gone = [str(key[len(path)]) for key in below if path or len(key) == 1]
    found = []
    for part in parts:
        if any(re.search(rf"\b{re.escape(key)}\b", part) for key in gone):
            continue  # this part is about a value that was left out, so the check saw its default
        target, message = _target(root, path, part, keys)
        if target in left_out:
            continue  # the check saw a stand-in, which nobody wrote
        found.append((target, _problem(root, target, _at(root, target).where, message)))
    return found


def _target(root: Node, path: KeyPath, text: str, keys: Sequence[str]) -> tuple[KeyPath, str]:
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
        node = _at(root, path)
        key = int(part) if isinstance(node.value, list) and part.isdecimal() else part
        if _child(node, key) is None and _child(node, ".".join(named[number:])) is not None:  # a key with dots
            return (*path, ".".join(named[number:])), rest
        if _child(node, key) is None:  # a default
            return path, ".".join(named[number:]) + f": {rest}" if outright else text
        path = (*path, key)
    return path, rest if outright else text


def _message(error: ErrorDetails, node: Node) -> str:
    if error["type"] in ("literal_error", "union_tag_invalid"):
        key = "expected" if error["type"] == "literal_error" else "expected_tags"
        options = re.findall(r"'([^']*)'", error["ctx"][key])
        hint = nearest(node.value, options) if isinstance(node.value, str) else ""
        return f"must be one of {', '.join(options)}; got {_describe(node)}{hint}"
    return error["msg"]


def _unknown_key(kind: type[Any], root: Node, path: KeyPath) -> str:
    keys = [*_keys_at(kind, root, path[:-1]), *(getattr(kind, "FILE_KEYS", ()) if len(path) == 1 else ())]
    in_mapping = len(path) > 1 and get_origin(_type_at(kind, root, path[:-2])) is Mapping
    if in_mapping and (nested := list(_nested(_at(root, path), ".".join(map(str, path[-2:])), keys))):
        return f"write {' and '.join(nested)} as one key{' each' if len(nested) > 1 else ''}"
    return f"unknown key{nearest(str(path[-1]), keys)}; valid here: {', '.join(keys)}"


def _nested(node: Node, name: str, keys: Sequence[str]) -> Iterator[str]:
    """The dotted names of all mappings, from `node` down, that have one of some keys."""
    if isinstance(node.value, dict):
        if not node.value.keys().isdisjoint(keys):
            yield name
            return
        for key, child in node.value.items():
            yield from _nested(child, f"{name}.{key}", keys)


def _problem(root: Node, path: KeyPath, where: Where, message: str) -> Problem:
    return Problem(where, _show(root, path), message)


def _show(root: Node, path: KeyPath) -> str:
    """The dotted path in the form that `--set` takes, with named list items by name."""
    shown: list[str] = []
    node: Node | None = root
    for part in path:
        node = _child(node, part) if node is not None else None
        name = node.item_name if node is not None and isinstance(part, int) else None
        shown.append(name or str(part))
    return ".".join(shown)


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node.value, dict) and isinstance(part, str):
        return node.value.get(part)
    if isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def _at(root: Node, path: KeyPath) -> Node:
    for part in path:
        child = _child(root, part)
        assert child is not None, path
        root = child
    return root


def _path_in(root: Node, error: ErrorDetails) -> KeyPath:
    """The longest part of the error's key path that exists in the tree, without the names of union members."""
    path: list[str | int] = []
    tag: object = None
    for part in error["loc"]:
        child = _child(root, part)
        if part == tag or child is None:
            tag = None
            continue
        path.append(part)
        root = child
        tag = root.value["format"].value if isinstance(root.value, dict) and "format" in root.value else None
    return tuple(path)


def _to_key(path: KeyPath) -> KeyPath:
    """The path up to its last key, because leaving out an item of a list would move the others."""
    while path and isinstance(path[-1], int):
        path = path[:-1]
    return path


def _stand_in(kind: type[Any], root: Node, path: KeyPath) -> Node | None:
    """A number in place of a faulty one that its dataclass requires, so that the other fields can be checked."""
    owner = _type_at(kind, root, path[:-1])
    required = {
        item.name
        for item in (fields(owner) if is_dataclass(owner) else ())
        if item.default is MISSING and item.default_factory is MISSING
    }
    if path[-1] in required and get_type_hints(owner)[path[-1]] in (int, float):
        return Node(1, _at(root, path).where)
    return None


def _without(node: Node, path: KeyPath, gone: Mapping[KeyPath, Node | None]) -> Node:
    """Copy the tree without some keys, or with stand-ins for them."""
    if isinstance(node.value, dict):
        kept: dict[str, Node] = {}
        for key, child in node.value.items():
            new = gone[(*path, key)] if (*path, key) in gone else _without(child, (*path, key), gone)
            if new is not None:
                kept[key] = new
        return Node(kept, node.where)
    if isinstance(node.value, list):
        items = [_without(child, (*path, index), gone) for index, child in enumerate(node.value)]
        return Node(items, node.where)
    return node


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
    if len(members) == 1 and get_origin(kind) in _UNIONS and isinstance(node.value, dict):
        return members[0]
    if get_origin(kind) in _ITEM or not members or not isinstance(node.value, dict) or "format" not in node.value:
        return kind
    tag = node.value["format"].value
    return next((member for member in members if tag in get_args(get_type_hints(member)["format"])), kind)


def _describe(node: Node) -> str:
    value = node.value
    if value is None:
        return "nothing"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return f"the text {value!r}" if isinstance(value, str) else str(value)
