"""`${VAR}` in the path-like values of a sweep file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sweeps.reading.problems import KeyPath, Problem
from sweeps.reading.yaml_source import Node

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_PLACES = re.compile(r"data\.(root|annotations)|model\.backbones\.\d+\.weights|store|tracking")
_PLACES_IN_WORDS = "data.root, data.annotations, weights of a backbone, store and tracking"


def expand_environment(root: Node, environ: Mapping[str, str], problems: list[Problem]) -> Node:
    """The tree with `${VAR}` and `${VAR:-default}` replaced in its path-like values.

    Everything else must mean the same on every machine, or a cell's id would depend on where it is computed.

    Args:
        root: the sweep file, after `extends` and `--set` (a value that was overridden needs no variable).
        environ: the environment; an empty variable counts as unset.
        problems: receives unset variables, and variables where none may be.
    """
    return _expand(root, (), "", environ, problems)


def _expand(node: Node, path: KeyPath, shown: str, environ: Mapping[str, str], problems: list[Problem]) -> Node:
    if isinstance(node.value, dict):
        return Node(
            {
                key: _expand(child, (*path, key), f"{shown}.{key}".lstrip("."), environ, problems)
                for key, child in node.value.items()
            },
            node.where,
        )
    if isinstance(node.value, list):
        return Node(
            [
                _expand(child, (*path, index), f"{shown}.{child.item_name or index}", environ, problems)
                for index, child in enumerate(node.value)
            ],
            node.where,
        )
    if not isinstance(node.value, str) or "${" not in node.value:
        return node
    if not _PLACES.fullmatch(".".join(map(str, path))):
        problems.append(Problem(node.where, shown, f"environment variables are allowed only in {_PLACES_IN_WORDS}"))
        return node
    return Node(_substitute(node, shown, environ, problems), node.where)


def _substitute(node: Node, shown: str, environ: Mapping[str, str], problems: list[Problem]) -> str:
    text = str(node.value)
    if "${" in _VARIABLE.sub("", text):
        problems.append(Problem(node.where, shown, "write an environment variable as ${NAME} or ${NAME:-default}"))
        return text

    def value_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        value = environ.get(name) or default
        if value is None:
            message = f"the environment variable {name} is not set; set it, or give the value with --set {shown}=..."
            problems.append(Problem(node.where, shown, message))
            return match.group()
        return value

    return _VARIABLE.sub(value_of, text)
