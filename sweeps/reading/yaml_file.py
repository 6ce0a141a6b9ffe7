"""Parse strict YAML 1.2 into a tree that knows every line, and read the files that hold one mapping of it.

A sweep file may come from anybody, so what it may cost is limited: its size, the number of its values and its depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, NodeEvent, ScalarEvent
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as RawNode

from sweeps.reading.tree import KeyPath, Node, Problem, Scalar, Where

MAX_BYTES = 256 * 1024
"""Size of a sweep file, or of the value of a `--set`. The sweeps that ship with the project have about 2 KiB."""
MAX_VALUES = 10_000
"""Scalars, lists and mappings in one file, keys included."""
MAX_DEPTH = 32
"""Lists and mappings inside each other. A sweep needs 5."""
TOO_LARGE = f"is larger than {MAX_BYTES // 1024} KiB"
_MAX_DIGITS = 100
_TAG = "tag:yaml.org,2002:"


def read_mapping(path: Path, what: str, problems: list[Problem], sources: list[str]) -> Node | None:
    """Read a file.

    Args:
        path: the file.
        what: what it is, for messages: `a sweep file`.
        problems: receives why it cannot be read.
        sources: receives its name as messages show it.

    Returns:
        The mapping, or None where there is none.
    """
    source = shown(path)
    sources.append(source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        text = content.decode("utf-8-sig") if len(content) <= MAX_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(Problem(Where(source), "", f"cannot be read: {reason}"))
        return None
    if len(content) > MAX_BYTES:
        problems.append(Problem(Where(source), "", TOO_LARGE))
        return None
    already = len(problems)
    root = parse_yaml(text, source, problems)
    if root is None:
        if len(problems) == already:
            problems.append(Problem(Where(source), "", "the file is empty"))
        return None
    if not isinstance(root.value, dict):
        problems.append(Problem(root.where, "", f"{what} is a mapping of keys to values"))
        return None
    return root


def shown(path: Path) -> str:
    """The path for messages, relative if it lies below the current directory."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def parse_yaml(text: str, source: str, problems: list[Problem], *, at: Where | None = None) -> Node | None:
    """Parse one YAML document.

    Args:
        text: the document. YAML 1.2: `no` and `on` are text, `1e-4` is a number.
        source: the file's name in messages.
        problems: receives bad syntax, duplicate keys, keys that are not text, anchors, tags, merge keys, and what is
            too large: more than `MAX_BYTES`, `MAX_VALUES` or `MAX_DEPTH`.
        at: the place to record for every node instead of its own line (for values of `--set`).

    Returns:
        The tree, or None when the text is empty or cannot be parsed.
    """
    line, problem, yaml = 0, "", YAML(typ="safe", pure=True)
    try:
        if len(text.encode(errors="replace")) > MAX_BYTES:
            problem = TOO_LARGE
        else:
            line, problem = next(_refused(yaml.parse(text)), (0, ""))
        root = None if problem else yaml.compose(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        problem = f"not valid YAML: {_explain(error)}"
    except YAMLError as error:
        problem = f"not valid YAML: {str(error).splitlines()[0]}"
    except (ValueError, OverflowError):  # from an escape such as "\U99999999"
        problem = "not valid YAML: an escape names no character"
    if problem:
        problems.append(Problem(at or Where(source, line), "", problem))
        return None
    return None if root is None else _Reader(yaml, source, problems, at).read(root, (), Where(source, 1))


def _explain(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "\\t" in problem:
        return "indented with a tab; use spaces"
    if "another document" in problem:
        return "a file holds one document, but '---' starts a second one"
    if error.context and "quoted scalar" in str(error.context):
        return f"{problem} {error.context}"
    return problem


def _refused(events: Any) -> Iterator[tuple[int, str]]:
    """Valid YAML that no sweep may hold: the line, and the problem."""
    values = depth = 0
    for event in events:
        line = event.start_mark.line + 1
        depth -= isinstance(event, CollectionEndEvent)
        if isinstance(event, NodeEvent):
            values += 1
            depth += isinstance(event, CollectionStartEvent)
            if isinstance(event, AliasEvent) or event.anchor is not None:
                yield line, "anchors and aliases (&, *) are not supported; write the value twice, or use `extends`"
        if values > MAX_VALUES:
            yield line, f"holds more than {MAX_VALUES} values"
        if depth > MAX_DEPTH - isinstance(event, ScalarEvent):
            yield line, f"is nested deeper than {MAX_DEPTH} levels"
        if isinstance(event, ScalarEvent):  # what an escape can smuggle in, and no file name and no UTF-8 file can hold
            for letter in event.value:
                if letter == "\0" or "\ud800" <= letter <= "\udfff":
                    yield line, f"a text may not hold the character U+{ord(letter):04X}"


class _Reader:
    """Converts ruamel's nodes to `Node`s and collects problems on the way."""

    def __init__(self, yaml: YAML, source: str, problems: list[Problem], at: Where | None) -> None:
        self._yaml, self._source, self._problems, self._at = yaml, source, problems, at

    def read(self, raw: RawNode, path: KeyPath, where: Where) -> Node:
        kind = str(raw.tag).removeprefix(_TAG)
        if isinstance(raw, MappingNode) and kind == "map":
            return Node(self._mapping(raw, path), where)
        if isinstance(raw, SequenceNode) and kind == "seq":
            items = [self.read(child, (*path, index), self._place(child)) for index, child in enumerate(raw.value)]
            return Node(items, where)
        problem = f"the tag {kind!r} is not allowed here"
        if kind == "int" and len(raw.value) > _MAX_DIGITS:
            problem = f"a number may have at most {_MAX_DIGITS} digits"
        elif isinstance(raw, ScalarNode):
            try:
                return Node(self._scalar(raw, kind), where)
            except (ValueError, KeyError):
                pass
        self._report(where, path, problem)
        return Node(None, where)

    def _scalar(self, raw: ScalarNode, kind: str) -> Scalar:
        if kind in ("str", "timestamp", "value"):  # a date stays text
            return str(raw.value)
        if kind not in ("null", "bool", "int", "float"):
            raise ValueError(kind)
        value: Scalar = self._yaml.constructor.construct_object(raw)
        return value

    def _mapping(self, raw: MappingNode, path: KeyPath) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key, value in raw.value:
            where = self._place(key)
            if key.tag == _TAG + "merge":
                self._report(where, path, "merge keys (<<) are not supported; use `extends`")
            elif not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                got = key.value if isinstance(key, ScalarNode) else "a list or mapping"
                self._report(where, path, f"a key must be text, got {got}")
            elif key.value in children:
                first = children[key.value].where
                self._report(where, (*path, key.value), f"duplicate key, first given at {first}")
            else:
                children[key.value] = self.read(value, (*path, key.value), where)
        return children

    def _place(self, raw: RawNode) -> Where:
        return self._at or Where(self._source, raw.start_mark.line + 1)

    def _report(self, where: Where, path: KeyPath, message: str) -> None:
        self._problems.append(Problem(where, ".".join(map(str, path)), message))
