"""Find a sweep, and turn its file, the files it extends and the overrides into one checked `SweepConfig`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from goal_sweep.goal_core.basics.errors import GoalError, nearest
from goal_sweep.goal_core.basics.plugins import Plugin, PluginError, read_plugin
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.sweeps.clusters import ClusterConfig
from goal_sweep.sweeps.reading.axis_lists import take_lists, validate_points
from goal_sweep.sweeps.reading.merging import address, apply_override, as_named, merge
from goal_sweep.sweeps.reading.paths import anchored, expand_environment, make_absolute
from goal_sweep.sweeps.reading.smoke import SUFFIX, shrunk
from goal_sweep.sweeps.reading.tree import Node, Problem, SweepError, Where
from goal_sweep.sweeps.reading.validation import validate
from goal_sweep.sweeps.reading.yaml_file import read_mapping
from goal_sweep.sweeps.schema import SweepConfig

Running = Literal["never", "own", "any"]
"""Which plugins run: none, so that only what they register is known; those of a sweep in the current folder or below;
or those of any sweep."""
BLOCK = "cluster"
"""The settings of clusters: in `--set cluster...`, and beside a sweep file in the site file."""
_EXPANDED = re.compile(r"(?!cluster\.slurm\.setup\.).*")
"""All but shell of the node, where `${VAR}` means a variable of the node."""
_FOLDER = Path(__file__).parent.parent
_MAX_CHAIN = 16
_ELSEWHERE = "lies outside the current folder, so its plugins do not run; --trust-plugins runs them"
_OUTSIDE = "lies outside the folder of the sweep and the current directory; copy it there, or start from a folder above"


class SweepNotFoundError(GoalError):
    """There is no file and no shipped sweep of this name."""


def load_sweep(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    *,
    running: Running = "never",
    environ: Mapping[str, str] | None = None,
) -> SweepConfig:
    """Read and check a sweep.

    The steps, in order: merge the file with what it extends, apply `overrides`, expand environment variables, check
    the result, and make paths absolute (relative ones start at the folder of the file that says them, those of
    overrides and defaults at the current directory).

    Args:
        path_or_name: a sweep file, or the name of a shipped sweep with or without `.yaml`; an existing file wins.
            `+smoke` after it makes the sweep small, before `overrides`.
        overrides: each `key.path=value`, with the value in YAML; later ones win.
        running: which plugins run.
        environ: the environment that `${VAR}` refers to; `os.environ` when not given.

    Raises:
        SweepNotFoundError: there is no such sweep.
        SweepError: the sweep has mistakes; lists all of them, each as `file:line: key.path: message`.
    """
    return load_for_cluster(path_or_name, overrides, kind=None, running=running, environ=environ).config


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSweep:
    """A sweep with the settings of the clusters that it can be submitted to."""

    config: SweepConfig
    """The sweep, with paths as this machine sees them."""
    cluster: ClusterConfig
    """The site's settings, and those of `--set` on top of them."""
    plain: Mapping[str, Any]
    """The sweep file after `extends` and `--set`, with environment variables unexpanded."""


def load_for_cluster(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    *,
    site: Path | None = None,
    kind: str | None = "",
    running: Running = "never",
    environ: Mapping[str, str] | None = None,
) -> ClusterSweep:
    """Read and check a sweep as `load_sweep` does, with the settings of clusters.

    Args:
        path_or_name: as in `load_sweep`.
        overrides: as in `load_sweep`; `cluster.slurm.time=1:00:00` sets a setting of a cluster.
        site: the site file.
        kind: the kind of cluster whose `environment` the sweep's `${VAR}` see before `environ`; empty for any after
            it; None for none.
        running: which plugins run.
        environ: as in `load_sweep`.

    Raises:
        SweepNotFoundError: there is no such sweep.
        SweepError: the sweep or the site file has mistakes; lists all of them.
    """
    environ = os.environ if environ is None else environ
    problems: list[Problem] = []
    sources: list[str] = []
    of_cluster = [text for text in overrides if text.partition("=")[0].strip().split(".")[0] == BLOCK]
    own = [text for text in overrides if text not in of_cluster]
    file, root = _merged(path_or_name, own, problems, sources)
    cluster = read_site(site, of_cluster, environ, problems, sources)
    root = anchored(root)
    plain = root.plain()
    root = expand_environment(root, _variables(cluster, kind, environ), problems)
    already = len(problems)
    root = _take_plugins(root, file, running, problems)
    if len(problems) > already:  # else each name that they register would be unknown, too
        raise SweepError(problems, sources)
    root, lists = take_lists(root, problems)
    config = validate_points(root, lists, problems)
    if problems or config is None or cluster is None:
        raise SweepError(problems, sources)
    return ClusterSweep(config=make_absolute(config), cluster=cluster, plain=plain)


def placed(path_or_name: str, overrides: Sequence[str], key: str, message: str) -> str:
    """Say where a sweep that can be read says a setting, or the section of one that it leaves out, and what is wrong.

    Returns:
        `file:line: key.path: message`, as in a `SweepError`.
    """
    own = [text for text in overrides if text.partition("=")[0].strip().split(".")[0] != BLOCK]
    _, root = _merged(path_or_name, own, [], [])
    path = address(root, key.split("."), root.where, []) or ()
    while (node := root.at(path)) is None:
        path = path[:-1]
    return str(Problem(node.where, key, message))


def _merged(
    path_or_name: str | Path, overrides: Sequence[str], problems: list[Problem], sources: list[str]
) -> tuple[Path, Node]:
    """A sweep's file, and what it says with what it extends and the overrides.

    Raises:
        SweepError: it cannot be read.
    """
    is_small = str(path_or_name).endswith(SUFFIX) and not Path(path_or_name).exists()
    file = find_sweep(str(path_or_name).removesuffix(SUFFIX) if is_small else path_or_name)
    root = _read(file, (), problems, sources)
    if root is None:
        raise SweepError(problems, sources)
    if (block := root.child(BLOCK)) is not None:
        message = "settings of clusters stand in the site file or in --set cluster..., because sweeps are passed on"
        problems.append(Problem(block.where, BLOCK, message))
        root = root.put((BLOCK,), None)
    root = shrunk(_spell_out(root), problems) if is_small else _spell_out(root)
    for override in overrides:
        root = _spell_out(apply_override(root, override, problems))
    return file, root


def _variables(cluster: ClusterConfig | None, kind: str | None, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment that a sweep's `${VAR}` see; that of this machine alone where `kind` is None."""
    if cluster is None or kind is None:
        return environ
    if kind:
        return {**environ, **getattr(cluster, kind).environment}
    return {**cluster.slurm.environment, **cluster.ray.environment, **cluster.kubernetes.environment, **environ}


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
    root = read_mapping(path, "a sweep file", problems, sources)
    if root is None:
        return None
    extends, own = root.child("extends"), root.put(("extends",), None)
    if extends is None:
        return own
    chain = (*above, path.resolve())
    try:
        base = _read(_base(extends.value, path.parent, chain), chain, problems, sources)
    except SweepNotFoundError as error:
        problems.append(Problem(extends.where, "extends", str(error)))
        return None
    return None if base is None else merge(base, own)


def _base(named: object, folder: Path, chain: Sequence[Path]) -> Path:
    """The file that an `extends` names.

    Raises:
        SweepNotFoundError: there is none, or it may not be read.
    """
    if not isinstance(named, str):
        raise SweepNotFoundError("must be a file's path or the name of a shipped sweep")
    base = find_sweep(named, folder)
    if len(chain) > _MAX_CHAIN:
        raise SweepNotFoundError(f"more than {_MAX_CHAIN} files extend each other in a row")
    if not any(base.resolve().is_relative_to(place.resolve()) for place in (chain[0].parent, Path.cwd(), _FOLDER)):
        raise SweepNotFoundError(f"{base} {_OUTSIDE}")
    if base.resolve() in chain:
        names = " -> ".join(item.name for item in (*chain[chain.index(base.resolve()) :], base))
        raise SweepNotFoundError(f"the files extend each other in a circle: {names}")
    return base


def _spell_out(root: Node) -> Node:
    """Expand abbreviations: a backbone's plain name becomes a mapping, `all` becomes the list of shipped weights."""
    backbones = root.at(("model", "backbones"))
    if backbones is not None and isinstance(backbones.value, list):
        items = [as_named(item) for item in backbones.value]
        root = root.put(("model", "backbones"), Node(items, backbones.where))
    for key, names in (("pair", pair_weights.shipped), ("triplet", triplet_weights.shipped)):
        node = root.at(("objectives", key))
        if node is not None and node.plain() in ("all", ["all"]):
            every = [Node(name, node.where) for name in names]
            root = root.put(("objectives", key), Node(every, node.where))
    return root


def _take_plugins(root: Node, file: Path, running: Running, problems: list[Problem]) -> Node:
    """Put the text of each plugin in the place of its name, make its parts known, and run it if it may.

    Args:
        root: the sweep file, after `extends` and `--set`.
        file: where it lies; plugins are named relative to its folder.
        running: which plugins run.
        problems: receives what is wrong with a plugin.

    Returns:
        The new tree.
    """
    listed = root.child("plugins")
    if listed is None or not isinstance(listed.value, list):
        return root  # the schema says what is wrong, as below
    items = []
    for node in listed.value:
        try:
            match node.plain():
                case str(name):
                    plugin = read_plugin(name, file.absolute().parent)
                case {"name": str(name), "text": str(text), **rest} if not rest:  # the sweep of a batch job
                    plugin = Plugin(name=name, text=text)
                case _:
                    return root
            plugin.announce()
            if running != "never":
                if running == "own" and not file.resolve().is_relative_to(Path.cwd().resolve()):
                    raise PluginError(f"{file} {_ELSEWHERE}")
                plugin.run()
        except PluginError as error:
            problems.append(Problem(node.where, "plugins", str(error)))
        else:
            texts = {name: Node(getattr(plugin, name), node.where) for name in ("name", "text")}
            items.append(Node(dict(texts), node.where))
    return root.put(("plugins",), Node(items, listed.where))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The settings under the name by which `--set` calls them."""

    cluster: ClusterConfig = field(default_factory=ClusterConfig)


def read_site(
    site: Path | None, overrides: Sequence[str], environ: Mapping[str, str], problems: list[Problem], sources: list[str]
) -> ClusterConfig | None:
    """Check the settings of clusters.

    Args:
        site: the site file; None where there is none.
        overrides: as of `--set`; the key of each begins with `cluster`.
        environ: the environment that `${VAR}` refers to, in all values but the lines of `setup`.
        problems: receives what is wrong. The key path begins with `cluster` in `--set`, and not in a site file.
        sources: receives the site file's name.

    Returns:
        The settings, or None when anything is wrong.
    """
    already = len(problems)
    settings = Node({}, Where("")) if site is None else read_mapping(site, "a site file", problems, sources)
    if settings is None:
        return None
    root = Node({BLOCK: settings}, settings.where)
    for override in overrides:
        root = apply_override(root, override, problems)
    found: list[Problem] = []
    root = expand_environment(root, environ, found, allowed=_EXPANDED, strict=False)
    built = validate(root, _Settings, found)
    for problem in found:
        is_in_file = problem.where.source == settings.where.source
        path = problem.path.removeprefix(f"{BLOCK}.") if is_in_file else problem.path
        problems.append(replace(problem, path=path))
    return built.cluster if built is not None and len(problems) == already else None
