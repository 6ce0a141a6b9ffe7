"""Parse strict YAML 1.2 into a tree that knows every line, and read the files that hold one mapping of it.

A sweep file may come from anybody, so what it may cost is limited: its size and its depth.
"""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.nodes import Node as RawNode

from goal_sweep.sweeps.reading.tree import KeyPath, Node, Problem, Scalar, Where

MAX_BYTES = 256 * 1024
"""Size of a sweep file, or of the value of a `--set`. The sweeps that ship with the project have about 2 KiB."""
MAX_DEPTH = 32
"""Lists and mappings inside each other. A sweep needs 5."""
_TOO_DEEP = f"is nested deeper than {MAX_DEPTH} levels"
_ALIAS = "anchors and aliases (&, *) are not supported; write the value twice, or use `extends`"
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
    if root is not None and isinstance(root.value, dict):
        return root
    if len(problems) == already:
        message = "the file is empty" if root is None else f"{what} is a mapping of keys to values"
        problems.append(Problem(Where(source) if root is None else root.where, "", message))
    return None


def parse_yaml(text: str, source: str, problems: list[Problem], *, at: Where | None = None) -> Node | None:
    """Parse one YAML document.

    Args:
        text: the document. YAML 1.2: `no` and `on` are text, `1e-4` is a number.
        source: the file's name in messages.
        problems: receives bad syntax, duplicate keys, keys that are not text, anchors, tags, merge keys, and what is
            too large: more than `MAX_BYTES` or `MAX_DEPTH`.
        at: the place to record for every node instead of its own line (for values of `--set`).

    Returns:
        The tree, or None when the text is empty or cannot be parsed.
    """
    line, yaml = 0, YAML(typ="safe", pure=True)
    if len(text.encode(errors="replace")) > MAX_BYTES:
        problems.append(Problem(at or Where(source), "", f"is larger than {MAX_BYTES // 1024} KiB"))
        return None
    try:
        root = yaml.compose(text)
        return None if root is None else _Reader(yaml, source, problems, at).read(root, (), Where(source, 1))
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 0
        problem = f"not valid YAML: {_explain(error)}"
    except YAMLError as error:
        problem = f"not valid YAML: {str(error).splitlines()[0]}"
    except (ValueError, OverflowError):  # from an escape such as "\U99999999"
        problem = "not valid YAML: an escape names no character"
    except RecursionError:
        problem = _TOO_DEEP
    problems.append(Problem(at or Where(source, line), "", problem))
    return None


def _explain(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context)
    if "alias" in problem:
        return _ALIAS
    if "\\t" in problem:
        return "indented with a tab; use spaces"
    if "another document" in problem:
        return "a file holds one document, but '---' starts a second one"
    if error.context and "quoted scalar" in str(error.context):
        return f"{problem} {error.context}"
    return problem


class _Reader:
    """Converts ruamel's nodes to `Node`s and collects problems on the way."""

    def __init__(self, yaml: YAML, source: str, problems: list[Problem], at: Where | None) -> None:
        self._yaml, self._source, self._problems, self._at = yaml, source, problems, at

    def read(self, raw: RawNode, path: KeyPath, where: Where) -> Node:
        kind = str(raw.tag).removeprefix(_TAG)
        if raw.anchor is not None:
            problem = _ALIAS
        elif len(path) > MAX_DEPTH - (not isinstance(raw, ScalarNode)):
            path, problem = (), _TOO_DEEP
        elif isinstance(raw, MappingNode) and kind == "map":
            return Node(self._mapping(raw, path), where)
        elif isinstance(raw, SequenceNode) and kind == "seq":
            return Node([self.read(child, (*path, n), self._place(child)) for n, child in enumerate(raw.value)], where)
        elif kind == "int" and len(raw.value) > _MAX_DIGITS:
            problem = f"a number may have at most {_MAX_DIGITS} digits"
        elif isinstance(raw, ScalarNode) and (odd := _odd_character(raw)):
            problem = odd
        elif isinstance(raw, ScalarNode) and kind in ("str", "timestamp", "value"):  # a date stays text
            return Node(str(raw.value), where)
        elif isinstance(raw, ScalarNode) and kind in ("null", "bool", "int", "float"):
            try:
                value: Scalar = self._yaml.constructor.construct_object(raw)
                return Node(value, where)
            except (ValueError, KeyError):  # such as !!int x
                problem = f"{raw.value!r} is none of kind {kind!r}"
        else:
            problem = f"the tag {kind!r} is not allowed here"
        self._report(where, path, problem)
        return Node(None, where)

    def _mapping(self, raw: MappingNode, path: KeyPath) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key, value in raw.value:
            where = self._place(key)
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str":
                got = key.value if isinstance(key, ScalarNode) else "a list or mapping"
                self._report(where, path, f"a key must be text, got {got}; files can be merged with `extends`")
            elif odd := _odd_character(key):
                self._report(where, path, odd)
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


def _odd_character(raw: ScalarNode) -> str:
    """What an escape can smuggle in, and no file name and no UTF-8 file can hold."""
    odd = next((letter for letter in raw.value if letter == "\0" or "\ud800" <= letter <= "\udfff"), "")
    return f"a text may not hold the character U+{ord(odd):04X}" if odd else ""
