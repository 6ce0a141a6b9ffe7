"""Parse strict YAML 1.2 into a tree that remembers the line of every key, and report problems by file and line.

A sweep file may come from anybody, so what it may cost is limited: its size, the number of its values and its depth.
A value that is repeated through aliases counts each time, because the tree holds it each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.events import AliasEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as RawNode

from goal_core.basics.errors import GoalError

MAX_BYTES = 256 * 1024
"""Size of a sweep file, or of the value of a `--set`. The sweeps that ship with the project have about 2 KiB."""
MAX_VALUES = 10_000
"""Scalars, lists and mappings in one file, keys included."""
MAX_DEPTH = 32
"""Lists and mappings inside each other. A sweep needs 5."""
TOO_LARGE = f"is larger than {MAX_BYTES // 1024} KiB"
MAX_PROBLEMS = 100
"""Problems that one message lists."""
_MAX_LINE = 1000
_MAX_DIGITS = 100

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
    """A sweep file or a `--set` is wrong. The message has one line for each of the first `MAX_PROBLEMS` problems.

    Args:
        problems: at least one.
        sources: the files, in the order in which to list their problems; other sources (`--set`) follow. The problems
            of one source are listed by line.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        lines = [_shortened(str(problem)) for problem in self.problems[:MAX_PROBLEMS]]
        rest = ["and further problems"] if len(self.problems) > MAX_PROBLEMS else []
        super().__init__("\n".join([*lines, *rest]))


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} [...]"


Scalar = str | int | float | bool | None

_TAG = "tag:yaml.org,2002:"
_ITSELF = "alias of what holds it"
"""Tag of the node that stands for an alias inside the node that it names."""


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
        problems: receives bad syntax, duplicate keys, keys that are not text, tags, merge keys, and what is too large:
            more than `MAX_BYTES`, `MAX_VALUES` or `MAX_DEPTH`.
        at: the place to record for every node instead of its own line (for values of `--set`).

    Returns:
        The tree, or None when the text is empty or cannot be parsed.
    """
    if len(text) > MAX_BYTES or len(text.encode(errors="replace")) > MAX_BYTES:
        problems.append(Problem(at or Where(source), "", TOO_LARGE))
        return None
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    try:
        root = yaml.compose(text)
    except _ForbiddenError as error:
        problems.append(Problem(at or Where(source, error.problem_mark.line + 1), "", str(error.problem)))
        return None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        problems.append(Problem(at or Where(source, line), "", f"not valid YAML: {_explain(error)}"))
        return None
    except YAMLError as error:
        problems.append(Problem(at or Where(source), "", f"not valid YAML: {str(error).splitlines()[0]}"))
        return None
    except (ValueError, OverflowError):  # from an escape such as "\U99999999"
        problems.append(Problem(at or Where(source), "", "not valid YAML: an escape names no character"))
        return None
    if root is None:
        return None
    return _Reader(source, problems, at).read(root, (), Where(source, 1))


def _explain(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "\\t" in problem:
        return "indented with a tab; use spaces"
    if "another document" in problem:
        return "a file holds one document, but '---' starts a second one"
    if error.context and "quoted scalar" in str(error.context):
        return f"{problem} {error.context}"
    return problem


class _ForbiddenError(MarkedYAMLError):
    """Valid YAML that no sweep may hold."""

    def __init__(self, message: str, mark: StreamMark) -> None:
        super().__init__(problem=message, problem_mark=mark)


@dataclass(frozen=True, slots=True)
class _Extent:
    """How large a node is when all its aliases are spelled out."""

    values: int
    depth: int


class _BoundedComposer(Composer):
    """Composes nodes that form a tree of limited size, however its aliases are spelled out."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader=loader)
        self.warn_double_anchors = False  # YAML 1.2 allows it, and a sweep's messages are our own
        self._values = 0
        self._deepest = [0]
        """The depth below each node that is being composed, as far as known; the last entry is the innermost node's."""
        self._extents: dict[str, _Extent] = {}
        """Of the nodes with an anchor that are complete."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.parser.peek_event()
        if isinstance(event, AliasEvent):
            return self._compose_alias(event, parent, index)
        if isinstance(event, ScalarEvent):
            _check_characters(event)
        self._extents.pop(event.anchor, None)
        before = self._values
        self._add(_Extent(1, 1), event)
        self._deepest.append(0)
        node = super().compose_node(parent, index)
        below = self._deepest.pop() + 1
        self._deepest[-1] = max(self._deepest[-1], below)
        if event.anchor is not None:
            self._extents[event.anchor] = _Extent(self._values - before, below)
        return node

    def _compose_alias(self, event: AliasEvent, parent: Any, index: Any) -> Any:
        extent = self._extents.get(event.anchor)
        if extent is not None:
            self._add(extent, event)
            self._deepest[-1] = max(self._deepest[-1], extent.depth)
        elif event.anchor in self.anchors:
            self.parser.get_event()
            return ScalarNode(_ITSELF, event.anchor, event.start_mark, event.end_mark)
        return super().compose_node(parent, index)

    def _add(self, extent: _Extent, event: Any) -> None:
        self._values += extent.values
        if self._values > MAX_VALUES:
            counted = "; an alias counts as all that it stands for" if isinstance(event, AliasEvent) else ""
            raise _ForbiddenError(f"holds more than {MAX_VALUES} values{counted}", event.start_mark)
        if len(self._deepest) - 1 + extent.depth > MAX_DEPTH:
            raise _ForbiddenError(f"is nested deeper than {MAX_DEPTH} levels", event.start_mark)


def _check_characters(event: ScalarEvent) -> None:
    """Refuse what an escape can smuggle into a text and no file name or UTF-8 file can hold."""
    bad = next((letter for letter in event.value if letter == "\0" or "\ud800" <= letter <= "\udfff"), None)
    if bad is not None:
        raise _ForbiddenError(f"a text may not hold the character U+{ord(bad):04X}", event.start_mark)


class _Reader:
    """Converts ruamel's nodes to `Node`s and collects problems on the way."""

    def __init__(self, source: str, problems: list[Problem], at: Where | None) -> None:
        self.source, self.problems, self.at = source, problems, at

    def place(self, raw: RawNode) -> Where:
        return self.at or Where(self.source, raw.start_mark.line + 1)

    def report(self, where: Where, path: KeyPath, message: str) -> None:
        self.problems.append(Problem(where, ".".join(map(str, path)), message))

    def read(self, raw: RawNode, path: KeyPath, where: Where) -> Node:
        if isinstance(raw, MappingNode) and raw.tag == _TAG + "map":
            return Node(self.mapping(raw, path), where)
        if isinstance(raw, SequenceNode) and raw.tag == _TAG + "seq":
            items = [self.read(child, (*path, index), self.place(child)) for index, child in enumerate(raw.value)]
            return Node(items, where)
        problem = f"the tag {str(raw.tag).removeprefix(_TAG)!r} is not allowed here"
        if raw.tag == _ITSELF:
            problem = "an alias may not contain itself"
        elif raw.tag == _TAG + "int" and len(raw.value) > _MAX_DIGITS:
            problem = f"a number may have at most {_MAX_DIGITS} digits"
        elif isinstance(raw, ScalarNode):
            try:
                return Node(_scalar(raw), where)
            except ValueError:
                pass
        self.report(where, path, problem)
        return Node(None, where)

    def mapping(self, raw: MappingNode, path: KeyPath) -> dict[str, Node]:
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
            children[key.value] = self.read(value, child, where)
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
