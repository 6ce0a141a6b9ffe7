"""Parse strict YAML 1.2 with the line of every value, and read the files that hold one mapping of it.

A sweep file may come from anybody, so what it may cost is limited: its size and its depth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from goal_sweep.sweeps.reading.document import Items, KeyPath, Problem, Section, Where

MAX_BYTES = 256 * 1024
"""Size of a sweep file, or of the value of a `--set`. The sweeps that ship with the project have about 2 KiB."""
MAX_DEPTH = 32
"""Lists and mappings inside each other. A sweep needs 5."""
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"
_ALIAS = "anchors and aliases (&, *) are not supported; write the value twice, or use `extends`"
_TAG = "tag:yaml.org,2002:"


def read_mapping(path: Path, what: str, problems: list[Problem], sources: list[str]) -> Section | None:
    """Read a file.

    Args:
        path: the file.
        what: what it is, for messages: `a sweep file`.
        problems: receives why it cannot be read.
        sources: receives its name as messages show it.

    Returns:
        The mapping, or None where there is none.
    """
    absolute, here = path.absolute(), Path.cwd()
    source = str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)
    sources.append(source)
    already = len(problems)
    try:
        with path.open("rb") as file:
            root = parse_yaml(file.read(MAX_BYTES + 1).decode("utf-8-sig"), source, problems)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(Problem(Where(source), "", f"cannot be read: {reason}"))
        return None
    if isinstance(root, Section):
        return root
    if len(problems) == already:
        message = "the file is empty" if root is None else f"{what} is a mapping of keys to values"
        problems.append(Problem(Where(source, 0 if root is None else 1), "", message))
    return None


def parse_yaml(text: str, source: str, problems: list[Problem], *, lines: bool = True) -> Any:
    """Parse one YAML document.

    Args:
        text: the document. YAML 1.2: `no` and `on` are text, `1e-4` is a number.
        source: the file's name in messages.
        problems: receives bad syntax, duplicate keys, keys that are not text, anchors, tags, merge keys, and what is
            too large: more than `MAX_BYTES` or `MAX_DEPTH`.
        lines: whether places have lines; those of a `--set` have none.

    Returns:
        The mapping, list or single value; None when the text is empty or cannot be parsed.
    """
    line, yaml = 0, YAML(typ="safe", pure=True)
    if len(text.encode(errors="replace")) > MAX_BYTES:
        problems.append(Problem(Where(source), "", f"is larger than {MAX_BYTES // 1024} KiB"))
        return None
    try:
        root = yaml.compose(text)
        return None if root is None else _Reader(yaml, source, problems, lines=lines).read(root, ())
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None and lines else 0
        said = _ALIAS if "alias" in str(error.problem) else f"{error.context or ''} {error.problem or ''}".strip()
        problem = f"not valid YAML: {said.replace(chr(92) + 't', 'tab; use spaces')}"
    except YAMLError as error:
        problem = f"not valid YAML: {str(error).splitlines()[0]}"
    except (ValueError, OverflowError):  # from an escape such as "\U99999999"
        problem = "not valid YAML: an escape names no character"
    except RecursionError:
        problem = _TOO_DEEP
    problems.append(Problem(Where(source, line), "", problem))
    return None


class _Reader:
    """Converts ruamel's nodes and collects problems on the way. What cannot be read becomes None."""

    def __init__(self, yaml: YAML, source: str, problems: list[Problem], *, lines: bool) -> None:
        self._yaml, self._source, self._problems, self._lines = yaml, source, problems, lines

    def read(self, node: Node, path: KeyPath) -> Any:
        kind, where = str(node.tag).removeprefix(_TAG), self._place(node)
        if node.anchor is not None:
            problem = _ALIAS
        elif len(path) > MAX_DEPTH - (not isinstance(node, ScalarNode)):
            path, problem = (), _TOO_DEEP
        elif isinstance(node, MappingNode) and kind == "map":
            return self._mapping(node, path)
        elif isinstance(node, SequenceNode) and kind == "seq":
            items = [self.read(child, (*path, number)) for number, child in enumerate(node.value)]
            return Items(items, dict(enumerate(map(self._place, node.value))))
        elif isinstance(node, ScalarNode) and kind in ("str", "timestamp", "value", "null", "bool", "int", "float"):
            try:
                is_text = kind in ("str", "timestamp", "value")  # a date stays text
                value = str(node.value) if is_text else self._yaml.constructor.construct_object(node)
                str(value).encode()
                return value
            except (ValueError, KeyError):  # such as !!int x, "\ud800", or a number of 5,000 digits
                problem = f"{node.value[:40]!r} cannot be a value of kind {kind!r}"
        else:
            problem = f"the tag {kind!r} is not allowed here"
        self._report(where, path, problem)
        return None

    def _mapping(self, node: MappingNode, path: KeyPath) -> Section:
        content: dict[str, Any] = {}
        places = {} if path else {"": self._place(node)}
        for key, value in node.value:
            where = self._place(key)
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str" or not key.value.isprintable():
                got = repr(key.value) if isinstance(key, ScalarNode) else "a list or mapping"
                self._report(where, path, f"a key must be text, got {got}; files can be merged with `extends`")
            elif key.value in content:
                self._report(where, (*path, key.value), f"duplicate key, first given at {places[key.value]}")
            else:
                content[key.value], places[key.value] = self.read(value, (*path, key.value)), where
        return Section(content, places)

    def _place(self, node: Node) -> Where:
        return Where(self._source, node.start_mark.line + 1 if self._lines else 0)

    def _report(self, where: Where, path: KeyPath, message: str) -> None:
        self._problems.append(Problem(where, ".".join(map(str, path)), message))
