"""The schema of a file of settings, as JSON schema: the one record of which keys there are and what they may hold."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from goal_sweep.sweeps.identity import reader_of
from goal_sweep.sweeps.reading.tree import KeyPath, Node

Schema = Mapping[str, Any]


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
