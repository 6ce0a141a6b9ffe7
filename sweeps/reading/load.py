"""Find a sweep, and turn its file, the files it extends and the overrides into one checked `SweepConfig`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from goal_core.errors import GoalError, nearest
from goal_core.objectives import pair_weights, triplet_weights
from sweeps.reading.merging import apply_override, as_named, merge
from sweeps.reading.paths import expand_environment, make_absolute
from sweeps.reading.validation import validate
from sweeps.reading.yaml_source import MAX_BYTES, TOO_LARGE, Node, Problem, SweepError, Where, parse_yaml
from sweeps.schema import SweepConfig

_FOLDER = Path(__file__).parent.parent
_MAX_CHAIN = 16
_OUTSIDE = "lies outside the folder of the sweep and the current directory; copy it there, or start from a folder above"


class SweepNotFoundError(GoalError):
    """There is no file and no shipped sweep of this name."""


def load_sweep(
    path_or_name: str | Path, overrides: Sequence[str] = (), *, environ: Mapping[str, str] | None = None
) -> SweepConfig:
    """Read and check a sweep.

    The steps, in order: merge the file with what it extends, apply `overrides`, expand environment variables, check
    the result, and make paths absolute (relative ones start at the current directory).

    Args:
        path_or_name: a sweep file, or the name of a shipped sweep with or without `.yaml`; an existing file wins.
        overrides: each `key.path=value`, with the value in YAML; later ones win.
        environ: the environment that `${VAR}` refers to; `os.environ` when not given.

    Raises:
        SweepNotFoundError: there is no such sweep.
        SweepError: the sweep has mistakes; lists all of them, each as `file:line: key.path: message`.
    """
    problems: list[Problem] = []
    sources: list[str] = []
    file = find_sweep(path_or_name)
    root = _read(file, (), problems, sources)
    if root is None:
        raise SweepError(problems, sources)
    root = _spell_out(root)
    for override in overrides:
        root = _spell_out(apply_override(root, override, problems))
    root = expand_environment(root, os.environ if environ is None else environ, problems)
    config = validate(root, SweepConfig, problems)
    if problems or config is None:
        raise SweepError(problems, sources)
    return make_absolute(config, file.parent)


def list_shipped() -> list[str]:
    """Names of the sweeps that ship with the project, in alphabetical order, without `.yaml`."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def find_sweep(sweep: str | Path, folder: Path | None = None) -> Path:
    """Find the file that a SWEEP argument or an `extends` names.

    Args:
        sweep: a path, or the name of a shipped sweep with or without `.yaml`; an existing file wins.
        folder: where relative paths start; the current directory when not given.

    Raises:
        SweepNotFoundError: there is no such file and no such shipped sweep.
    """
    path = (folder or Path()) / Path(sweep).expanduser()
    try:
        if path.is_file():
            return path
    except OSError as error:  # too long for a file name, or in a folder that may not be read
        raise SweepNotFoundError(f"sweep {str(sweep)[:80]!r} cannot be read: {error.strerror}") from error
    name = str(sweep).removesuffix(".yaml").removesuffix(".yml")
    names = list_shipped()
    if name in names:
        return _FOLDER / f"{name}.yaml"
    kind = "is a folder" if path.is_dir() else "is neither a file nor the name of a shipped sweep"
    hint = nearest(Path(name).name, names)
    raise SweepNotFoundError(f"sweep {str(sweep)!r} {kind}{hint}; shipped sweeps: {', '.join(names)}")


def _read(path: Path, above: tuple[Path, ...], problems: list[Problem], sources: list[str]) -> Node | None:
    """Read a file and merge it over what it extends; report a problem and return None when one cannot be read."""
    source = _shown(path)
    sources.append(source)
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            problems.append(Problem(Where(source), "", TOO_LARGE))
            return None
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(Problem(Where(source), "", f"cannot be read: {reason}"))
        return None
    already = len(problems)
    root = parse_yaml(text, source, problems)
    if root is None:
        if len(problems) == already:
            problems.append(Problem(Where(source), "", "the file is empty"))
        return None
    if not isinstance(root.value, dict):
        problems.append(Problem(root.where, "", "a sweep file is a mapping of keys to values"))
        return None
    own = {key: child for key, child in root.value.items() if key != "extends"}
    if "extends" not in root.value:
        return Node(own, root.where)
    base = _read_base(root.value["extends"], path, above, problems, sources)
    return None if base is None else merge(base, Node(own, root.where))


def _read_base(
    extends: Node, path: Path, above: tuple[Path, ...], problems: list[Problem], sources: list[str]
) -> Node | None:
    chain = (*above, path.resolve())
    if not isinstance(extends.value, str):
        problems.append(Problem(extends.where, "extends", "must be a file's path or the name of a shipped sweep"))
        return None
    try:
        base = find_sweep(extends.value, path.parent)
    except SweepNotFoundError as error:
        problems.append(Problem(extends.where, "extends", str(error)))
        return None
    if len(chain) > _MAX_CHAIN:
        message = f"more than {_MAX_CHAIN} files extend each other in a row"
        problems.append(Problem(extends.where, "extends", message))
        return None
    if not any(base.resolve().is_relative_to(folder.resolve()) for folder in (chain[0].parent, Path.cwd(), _FOLDER)):
        problems.append(Problem(extends.where, "extends", f"{base} {_OUTSIDE}"))
        return None
    if base.resolve() in chain:
        circle = chain[chain.index(base.resolve()) :]
        names = " -> ".join(item.name for item in (*circle, base))
        problems.append(Problem(extends.where, "extends", f"the files extend each other in a circle: {names}"))
        return None
    return _read(base, chain, problems, sources)


def _shown(path: Path) -> str:
    """The path for messages, relative if it lies below the current directory."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(absolute)


def _spell_out(root: Node) -> Node:
    """Expand abbreviations: a backbone's plain name becomes a mapping, `all` becomes the list of weights."""
    root = _edit(root, ("model", "backbones"), _named_items)
    root = _edit(root, ("objectives", "pair"), lambda node: _all_of(node, list(pair_weights)))
    return _edit(root, ("objectives", "triplet"), lambda node: _all_of(node, list(triplet_weights)))


def _named_items(node: Node) -> Node:
    return Node([as_named(item) for item in node.value], node.where) if isinstance(node.value, list) else node


def _all_of(node: Node, names: Sequence[str]) -> Node:
    if node.plain() not in ("all", ["all"]):
        return node
    return Node([Node(name, node.where) for name in names], node.where)


def _edit(node: Node, path: Sequence[str], change: Callable[[Node], Node]) -> Node:
    """Change the node at `path`; return the tree unchanged when there is none."""
    if not path:
        return change(node)
    if not isinstance(node.value, dict) or path[0] not in node.value:
        return node
    children = {**node.value, path[0]: _edit(node.value[path[0]], path[1:], change)}
    return Node(children, node.where)
