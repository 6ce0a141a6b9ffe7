"""Parse strict YAML 1.2 into a tree that remembers the line of every key, and report problems by file and line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as RawNode

from goal_core.errors import GoalError

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the sweep file down to a value."""


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value was written."""

    source: str
    """The file as shown to the user, or `--set key`."""
    line: int = 0
    """Line in the file, counted from 1; 0 where there is none."""

    def __str__(self) -> str:
        """`file:line`, or the source alone."""
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, described in one line."""

    where: Where
    path: str
    """Dotted key path with list items by name or index, such as `stages.frozen.lr`; empty for the whole file."""
    message: str

    def __str__(self) -> str:
        """`file:line: key.path: message`."""
        parts = [str(self.where), self.path, self.message] if self.path else [str(self.where), self.message]
        return ": ".join(parts)


class SweepError(GoalError):
    """A sweep file or a `--set` is wrong. The message has one line for each problem.

    Args:
        problems: at least one.
        sources: the files, in the order in which to list their problems; other sources (`--set`) follow. The problems
            of one source are listed by line.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        super().__init__("\n".join(str(problem) for problem in self.problems))


Scalar = str | int | float | bool | None

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a sweep file, with the line of its key (in a list, of the item itself). Never changed in place."""

    value: Scalar | dict[str, Node] | list[Node]
    where: Where

    def plain(self) -> Any:
        """The value as ordinary dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    @property
    def item_name(self) -> str | None:
        """The text under `name` if this is a mapping that has one, else None."""
        if isinstance(self.value, dict) and "name" in self.value:
            name = self.value["name"].value
            return name if isinstance(name, str) else None
        return None


def parse_yaml(text: str, source: str, problems: list[Problem], *, at: Where | None = None) -> Node | None:
    """Parse one YAML document.

    Args:
        text: the document. YAML 1.2: `no` and `on` are text, `1e-4` is a number.
        source: the file's name in messages.
        problems: receives bad syntax, duplicate keys, keys that are not text, tags and merge keys.
        at: the place to record for every node instead of its own line (for values of `--set`).

    Returns:
        The tree, or None when the text is empty or cannot be parsed.
    """
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        problems.append(Problem(at or Where(source, line), "", f"not valid YAML: {_explain(error)}"))
        return None
    except YAMLError as error:
        problems.append(Problem(at or Where(source), "", f"not valid YAML: {str(error).splitlines()[0]}"))
        return None
    if root is None:
        return None
    return _Reader(source, problems, at).read(root, (), Where(source, 1), ())


def _explain(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "\\t" in problem:
        return "indented with a tab; use spaces"
    if "another document" in problem:
        return "a file holds one document, but '---' starts a second one"
    if error.context and "quoted scalar" in str(error.context):
        return f"{problem} {error.context}"
    return problem


class _Reader:
    """Converts ruamel's nodes to `Node`s and collects problems on the way."""

    def __init__(self, source: str, problems: list[Problem], at: Where | None) -> None:
        self.source, self.problems, self.at = source, problems, at

    def place(self, raw: RawNode) -> Where:
        return self.at or Where(self.source, raw.start_mark.line + 1)

    def report(self, where: Where, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(where, ".".join(map(str, path)), message))

    def read(self, raw: RawNode, path: KeyPath, where: Where, above: tuple[RawNode, ...]) -> Node:
        if raw in above:
            self.report(where, path, "an alias may not contain itself")
            return Node(None, where)
        if isinstance(raw, MappingNode) and raw.tag == _TAG + "map":
            return Node(self.mapping(raw, path, (*above, raw)), where)
        if isinstance(raw, SequenceNode) and raw.tag == _TAG + "seq":
            items = [
                self.read(child, (*path, index), self.place(child), (*above, raw))
                for index, child in enumerate(raw.value)
            ]
            return Node(items, where)
        if isinstance(raw, ScalarNode):
            try:
                return Node(_scalar(raw), where)
            except ValueError:
                pass
        self.report(where, path, f"the tag {str(raw.tag).removeprefix(_TAG)!r} is not allowed here")
        return Node(None, where)

    def mapping(self, raw: MappingNode, path: KeyPath, above: tuple[RawNode, ...]) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key, value in raw.value:
            where = self.place(key)
            if key.tag == _TAG + "merge":
                self.report(where, path, "merge keys (<<) are not supported; use `extends`")
                continue
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                shown = key.value if isinstance(key, ScalarNode) else "a list or mapping"
                self.report(where, path, f"a key must be text, got {shown}")
                continue
            child = (*path, key.value)
            if key.value in children:
                self.report(where, child, f"duplicate key, first given at {children[key.value].where}")
                continue
            children[key.value] = self.read(value, child, where, above)
        return children


def _scalar(raw: ScalarNode) -> Scalar:
    """Convert a scalar to its value; dates stay text.

    Raises:
        ValueError: the tag is not in YAML's core schema.
    """
    text = raw.value
    kind = str(raw.tag).removeprefix(_TAG)
    if kind in ("str", "timestamp", "value"):
        return str(text)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    number = text.replace("_", "").lower()
    if kind == "int":
        digits = number.lstrip("+-")
        return int(number, {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10))
    if kind == "float":
        return float(number.replace(".inf", "inf").replace(".nan", "nan"))
    raise ValueError(kind)
