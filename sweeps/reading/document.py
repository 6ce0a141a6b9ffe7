"""Read strict YAML 1.2 into mappings and lists that know where each value was written, and tell of mistakes there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from goal_sweep.goal_core.basics.errors import GoalError

KeyPath = tuple[str | int, ...]
"""Keys and list indices from the top of the sweep file down to a value."""
_ALIAS = "anchors and aliases (&, *) are not supported; write the value twice, or use `extends`"
_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Where:
    """Where a value was written."""

    source: str
    """The file as shown to the user, or `--set key`."""
    line: int = 0
    """Line in the file, counted from 1; 0 where there is none."""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake, described in one line."""

    where: Where
    path: str
    """Dotted key path with list items by name or index, such as `stages.frozen.lr`; empty for the whole file."""
    message: str

    def __str__(self) -> str:
        path = self.path.removeprefix(str(self.where).removeprefix("--set ")).removeprefix(".")
        return ": ".join(part for part in (str(self.where), path, self.message) if part)


class SweepError(GoalError):
    """A sweep file or a `--set` is wrong. The message has one line for each problem.

    Those of each of the `sources` come together, in their order, by line; those of other sources (`--set`) follow.
    """

    def __init__(self, problems: Iterable[Problem], sources: Sequence[str] = ()) -> None:
        unique = list(dict.fromkeys(problems))
        order = list(dict.fromkeys([*sources, *(problem.where.source for problem in unique)]))
        self.problems = tuple(sorted(unique, key=lambda item: (order.index(item.where.source), item.where.line)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(slots=True)
class Document:
    """The settings of a file, and where they were written."""

    content: Any
    """A mapping, but where another value is to be put into one."""
    places: dict[KeyPath, Where]
    """Of every key and item. What is not in it was written with what is above it."""

    def at(self, path: KeyPath) -> Any:
        """The value at a path; None where there is none."""
        value = self.content
        for part in path:
            value = value[part] if has(value, part) else None
        return value

    def place(self, path: KeyPath) -> Where:
        """Where the value at a path was written, or else the nearest one above it."""
        return next(self.places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.places)

    def put(self, path: KeyPath, value: Any) -> None:
        """Set the value at a path. A mapping that is missing on the way is made."""
        owner = self.content
        for part in path[:-1]:
            if not has(owner, part) or not isinstance(owner[part], dict | list):
                owner[part] = {}
            owner = owner[part]
        owner[path[-1]] = value

    def below(self, path: KeyPath) -> Document:
        """What is at a path, as a document of its own."""
        places = {one[len(path) :]: where for one, where in self.places.items() if one[: len(path)] == path}
        return Document(self.at(path), {(): self.place(path), **places})

    def graft(self, path: KeyPath, other: Document) -> None:
        """Put another document at a path, with its places. What is made on the way has the place of the other."""
        made = [path[:end] for end in range(1, len(path)) if not isinstance(self.at(path[:end]), dict | list)]
        self.put(path, other.content)
        kept = {one: where for one, where in self.places.items() if one[: len(path)] != path}
        inside = {(*path, *one): where for one, where in other.places.items()}
        self.places = {**kept, **dict.fromkeys(made, other.place(())), **inside}

    def texts(self, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
        """Every text below a path, with its own."""
        value = self.at(path)
        if isinstance(value, str):
            yield path, value
        for part in [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
            yield from self.texts((*path, part))

    def shown(self, path: KeyPath) -> str:
        """A path in the form that `--set` takes: dotted, with the items of a list by name where they have one."""
        words = []
        for number, part in enumerate(path, start=1):
            words.append((name_of(self.at(path[:number])) if isinstance(part, int) else None) or str(part))
        return ".".join(words)

    def resolve(self, words: Sequence[str], path: KeyPath = ()) -> tuple[KeyPath, Sequence[str]]:
        """Follow a dotted key, with list items by name or index, as far as it leads: the path, and the other words."""
        owner = self.at(path)
        for used in range(len(words), 0, -1):  # a key or a name may have dots, such as `resnet50.a1_in1k`
            part: str | int = ".".join(words[:used])
            if isinstance(owner, list):
                named = (number for number, item in enumerate(owner) if name_of(item) == part)
                part = next(named, int(words[0]) if words[0].isdecimal() and used == 1 else -1)
            if has(owner, part):
                return self.resolve(words[used:], (*path, part))
        return path, words


def has(value: Any, part: str | int) -> bool:
    """Whether a value has something under a key or at an index."""
    if isinstance(value, list):
        return isinstance(part, int) and 0 <= part < len(value)
    return isinstance(value, dict) and part in value


def name_of(item: Any) -> str | None:
    """The text under `name` of a mapping that has it."""
    name = item.get("name") if isinstance(item, dict) else None
    return name if isinstance(name, str) else None


def read_mapping(path: Path, what: str, problems: list[Problem], sources: list[str]) -> Document:
    """Read the mapping of a file, which is `what`. `sources` receives its name as messages show it.

    Raises `SweepError` where there is none.
    """
    absolute, here = path.absolute(), Path.cwd()
    sources.append(str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute))
    try:
        found = parse_yaml(path.read_text(encoding="utf-8-sig"), sources[-1], problems)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SweepError([Problem(Where(sources[-1]), "", f"cannot be read: {reason}")]) from error
    if not isinstance(found.content, dict):
        message = "the file is empty" if found.content is None else f"{what} is a mapping of keys to values"
        raise SweepError([Problem(Where(sources[-1], int(found.content is not None)), "", message)])
    return found


def parse_yaml(text: str, source: str, problems: list[Problem], *, lines: bool = True) -> Document:
    """Parse one document of YAML 1.2, where `no` and `on` are text and `1e-4` is a number. Its root may be any value.

    Places have the `source` and, unless it is a `--set`, lines. `problems` receives duplicate keys. Raises `SweepError`
    where it has bad syntax, anchors, tags, merge keys, or keys that are no text.
    """
    line, yaml = 0, YAML(typ="safe", pure=True)
    try:
        node, reader = yaml.compose(text), _Reader(yaml, source, problems, lines=lines)
        root = None if node is None else reader.read(node, ())
        return Document(root, {(): Where(source), **reader.places})
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None and lines else 0
        said = _ALIAS if "alias" in str(error.problem) else f"{error.context or ''} {error.problem or ''}".strip()
        said += "; put quotes around ${...}" * ("got '{'" in said)
        problem = f"not valid YAML: {said.replace(chr(92) + 't', 'tab; use spaces')}"
    except YAMLError as error:
        problem = f"not valid YAML: {str(error).splitlines()[0]}"
    except (ValueError, OverflowError):  # from an escape such as "\U99999999"
        problem = "not valid YAML: an escape names no character"
    except RecursionError:
        problem = "is nested too deeply"
    raise SweepError([Problem(Where(source, line), "", problem)])


class _Reader:
    def __init__(self, yaml: YAML, source: str, problems: list[Problem], *, lines: bool) -> None:
        self._yaml, self._source, self._problems, self._lines = yaml, source, problems, lines
        self.places: dict[KeyPath, Where] = {}

    def read(self, node: Node, path: KeyPath) -> Any:
        if node.anchor is not None:
            raise _refusal(node, _ALIAS)
        self.places.setdefault(path, self._place(node))  # of a value its key's is there
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self.read(child, (*path, number)) for number, child in enumerate(node.value)]
        if not isinstance(node, ScalarNode):
            raise _refusal(node, f"the tag {node.tag} is not allowed here")
        try:
            is_text = node.tag in (_TAG + "str", _TAG + "timestamp", _TAG + "value")  # a date stays text
            value = str(node.value) if is_text else self._yaml.constructor.construct_object(node)
            str(value).encode()  # which half a character has not, nor a number of 5,000 digits
        except (ValueError, KeyError) as error:  # also of !!int x
            raise _refusal(node, f"{node.value[:40]!r} is no {str(node.tag).removeprefix(_TAG)}") from error
        return value

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            where, name, own = self._place(key), key.value, (*path, key.value)
            if not isinstance(key, ScalarNode) or key.tag != _TAG + "str" or not name.isprintable():
                got = repr(name) if isinstance(key, ScalarNode) else "a list or mapping"
                raise _refusal(key, f"a key must be text, got {got}; files can be merged with `extends`")
            if name in found:
                message = f"duplicate key, first given at {self.places[own]}"
                self._problems.append(Problem(where, ".".join(map(str, own)), message))
            else:
                self.places[own] = where
                found[name] = self.read(value, own)
        return found

    def _place(self, node: Node) -> Where:
        return Where(self._source, node.start_mark.line + 1 if self._lines else 0)


def _refusal(node: Node, problem: str) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
