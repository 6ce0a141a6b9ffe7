"""Find a sweep, and turn its file, the files it extends and the overrides into one checked `SweepConfig`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from goal_sweep.goal_core.basics.errors import GoalError, nearest
from goal_sweep.goal_core.basics.plugins import Plugin, PluginError, read_plugin
from goal_sweep.goal_core.objectives import pair_weights, triplet_weights
from goal_sweep.sweeps.clusters import ClusterConfig
from goal_sweep.sweeps.reading.axis_lists import validate_lists
from goal_sweep.sweeps.reading.document import (
    Items,
    Problem,
    Section,
    SweepError,
    Where,
    located,
    place_of,
    put,
    resolve,
    value_at,
)
from goal_sweep.sweeps.reading.merging import apply_override, merge, with_names
from goal_sweep.sweeps.reading.paths import expand_environment, make_absolute
from goal_sweep.sweeps.reading.smoke import SUFFIX, shrunk
from goal_sweep.sweeps.reading.validation import validate
from goal_sweep.sweeps.reading.yaml_file import read_mapping
from goal_sweep.sweeps.schema import SweepConfig, SweepPlaces

_OF_CLUSTERS = "settings of clusters stand in the site file or in --set cluster..., because sweeps are passed on"
_NO_AXES = "unknown key; write a list of values in the place of the setting, such as objectives.params.tau"
_SITE_VARIABLES = re.compile(r"(?!cluster\.slurm\.setup\.).*")
"""Where `${VAR}` means a variable of this machine: in all but shell of the node."""
_FOLDER = Path(__file__).parent.parent
_MAX_CHAIN = 16
_UNTRUSTED = "lies outside the current folder, so no plugin of it runs; start in its folder, or give --trust-plugins"
_OUTSIDE = "lies outside the folder of the sweep and the current directory; copy it there, or start from a folder above"


class SweepNotFoundError(GoalError):
    """There is no file and no shipped sweep of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSweep:
    """A sweep with the settings of the clusters that it can be submitted to."""

    config: SweepConfig
    """The sweep, with paths as this machine sees them."""
    cluster: ClusterConfig
    """The site's settings, and those of `--set` on top of them."""
    plain: Mapping[str, Any]
    """The sweep file after `extends` and `--set`, with environment variables unexpanded."""


def load_sweep(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    *,
    trusted: bool = False,
    environ: Mapping[str, str] | None = None,
) -> SweepConfig:
    """Read and check a sweep, and run its plugins.

    The file is merged with what it extends and with `overrides`. Relative paths start at the folder of the file that
    says them, those of overrides and defaults at the current directory.

    Args:
        path_or_name: a sweep file, or the name of a shipped sweep with or without `.yaml`; an existing file wins.
            `+smoke` after it makes the sweep small, before `overrides`.
        overrides: each `key.path=value`, with the value in YAML; later ones win.
        trusted: also run plugins of a sweep that lies outside the current folder.
        environ: the environment that `${VAR}` refers to; `os.environ` when not given.

    Raises:
        SweepNotFoundError: there is no such sweep.
        SweepError: the sweep has mistakes; lists all of them, each as `file:line: key.path: message`.
    """
    return load_for_cluster(path_or_name, overrides, trusted=trusted, environ=environ).config


def load_for_cluster(
    path_or_name: str | Path,
    overrides: Sequence[str] = (),
    *,
    site: Path | None = None,
    kind: str = "",
    trusted: bool = False,
    environ: Mapping[str, str] | None = None,
) -> ClusterSweep:
    """Read and check a sweep as `load_sweep` does, with the settings of clusters.

    Args:
        path_or_name: as in `load_sweep`, like all that is not here.
        overrides: `cluster.slurm.time=1:00:00` sets a setting of a cluster.
        site: the site file.
        kind: the kind of cluster whose `environment` the sweep's `${VAR}` see before `environ`; empty for any after it.
        trusted: as in `load_sweep`.
        environ: as in `load_sweep`.
    """
    problems, sources = list[Problem](), list[str]()
    file, root, plain, cluster = _read(path_or_name, overrides, site, kind, environ, problems, sources)
    already = len(problems)
    _run_plugins(root, file, problems, trusted=trusted)
    # Without a plugin, each name that it registers would be unknown, too.
    config = validate_lists(root, problems) if len(problems) == already else None
    if problems or config is None or cluster is None:
        raise SweepError(problems, sources)
    return ClusterSweep(config=config, cluster=cluster, plain=plain)


def load_places(path_or_name: str | Path, overrides: Sequence[str] = (), *, site: Path | None = None) -> SweepPlaces:
    """Read where a sweep's results are, and run no plugin; arguments and errors as those of `load_for_cluster`.

    Returns:
        The whole sweep, a `SweepConfig`; of one with plugins its places alone.
    """
    problems, sources = list[Problem](), list[str]()
    _, root, _, _ = _read(path_or_name, overrides, site, "", None, problems, sources)
    found: SweepPlaces | None
    if "plugins" in root:
        own = {item.name: root[item.name] for item in fields(SweepPlaces) if item.name in root}
        found = validate(Section(own, root.places), SweepPlaces, problems)
    else:
        found = validate_lists(root, problems)
    if problems or found is None:
        raise SweepError(problems, sources)
    return found


def placed(path_or_name: str, overrides: Sequence[str], key: str, message: str) -> str:
    """Say where a sweep that can be read says a setting, or the section of one that it leaves out, and what is wrong.

    Returns:
        `file:line: key.path: message`, as in a `SweepError`.
    """
    _, root = _merged(path_or_name, overrides, None, [], [])
    return str(Problem(place_of(root, resolve(root, key.split("."))[0]), key, message))


def _read(
    path_or_name: str | Path,
    overrides: Sequence[str],
    site: Path | None,
    kind: str,
    environ: Mapping[str, str] | None,
    problems: list[Problem],
    sources: list[str],
) -> tuple[Path, Section, Section, ClusterConfig | None]:
    """A sweep's file, the sweep before it is checked, its `plain` form, and the settings of clusters, if valid."""
    environ = os.environ if environ is None else environ
    file, root = _merged(path_or_name, overrides, site, problems, sources)
    cluster = _site(root, environ, problems)
    make_absolute(root, expanded=False)
    plain = deepcopy(root)
    kinds = {} if cluster is None else {item.name: getattr(cluster, item.name) for item in fields(cluster)}
    variables = {name: dict(getattr(one, "environment", {})) for name, one in kinds.items()}
    anywhere = {key: value for one in variables.values() for key, value in one.items()}
    expand_environment(root, {**anywhere, **environ, **variables.get(kind, {})}, problems)
    for item in fields(SweepPlaces):
        if item.default is not MISSING:
            root.setdefault(item.name, item.default)
    make_absolute(root, expanded=True)
    store, tracking = root["store"], root["tracking"]
    if isinstance(store, str) and isinstance(tracking, str) and "://" not in store:
        put(root, ("tracking",), tracking.replace("{store}", store))  # of a bucket each machine has its own folder
    return file, root, plain, cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """The settings of clusters under the name by which `--set` calls them."""

    cluster: ClusterConfig


def _site(root: Section, environ: Mapping[str, str], problems: list[Problem]) -> ClusterConfig | None:
    """Take the settings of clusters out of a sweep; None if they are wrong. A site file has no key `cluster`."""
    own, found = Section({"cluster": root.pop("cluster")}, {"": Where(""), "cluster": Where("")}), list[Problem]()
    expand_environment(own, environ, found, allowed=_SITE_VARIABLES, strict=False)
    site = validate(own, _Site, found)
    problems += [replace(one, path=one.path.removeprefix("cluster.")) if one.where.line else one for one in found]
    return None if site is None else site.cluster


def _merged(
    path_or_name: str | Path, overrides: Sequence[str], site: Path | None, problems: list[Problem], sources: list[str]
) -> tuple[Path, Section]:
    """A sweep's file, and what it says with what it extends, with the site file under `cluster`, and the overrides.

    Raises:
        SweepError: it cannot be read.
    """
    is_small = str(path_or_name).endswith(SUFFIX) and not Path(path_or_name).exists()
    file = find_sweep(str(path_or_name).removesuffix(SUFFIX) if is_small else path_or_name)
    root = _merged_file(file, (), problems, sources)
    if root is None:
        raise SweepError(problems, sources)
    if root.pop("cluster", None) is not None:
        problems.append(Problem(root.places["cluster"], "cluster", _OF_CLUSTERS))
    _spell_out(root)
    root = shrunk(root, problems) if is_small else root
    of_site = read_mapping(site, "a site file", problems, sources) if site else None
    root["cluster"] = of_site if of_site is not None else Section({}, {"": Where("")})
    for override in overrides:
        apply_override(root, override, problems)
        _spell_out(root)
    if root.pop("axes", None) is not None:
        problems.append(Problem(root.places["axes"], "axes", _NO_AXES))
    return file, root


def _merged_file(path: Path, above: tuple[Path, ...], problems: list[Problem], sources: list[str]) -> Section | None:
    """Read a file and merge it over what it extends; report a problem and return None when one cannot be read."""
    root = read_mapping(path, "a sweep file", problems, sources)
    if root is None or "extends" not in root:
        return root
    where, chain, named = place_of(root, ("extends",)), (*above, path.resolve()), root.pop("extends")
    try:
        base = _merged_file(_base(named, path.parent, chain), chain, problems, sources)
    except SweepNotFoundError as error:
        problems.append(Problem(where, "extends", str(error)))
        return None
    merged: Section | None = None if base is None else merge(base, root)
    return merged


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
    name, names = str(sweep).removesuffix(".yaml").removesuffix(".yml"), list_shipped()
    if name in names:
        return _FOLDER / f"{name}.yaml"
    kind = "is a folder" if path.is_dir() else "is neither a file nor the name of a shipped sweep"
    hint = nearest(Path(name).name, names)
    raise SweepNotFoundError(f"sweep {str(sweep)!r} {kind}{hint}; shipped sweeps: {', '.join(names)}")


def _spell_out(root: Section) -> None:
    """Expand abbreviations: a backbone's plain name becomes a mapping, `all` becomes the list of shipped weights."""
    if isinstance(backbones := value_at(root, ("model", "backbones")), Items):
        put(root, ("model", "backbones"), with_names(backbones))
    for path, names in ((("objectives", "pair"), pair_weights), (("objectives", "triplet"), triplet_weights)):
        if value_at(root, path) in ("all", ["all"]):
            put(root, path, located(list(names.shipped), place_of(root, path)))


def _run_plugins(root: Section, file: Path, problems: list[Problem], *, trusted: bool) -> None:
    """Run each plugin of a sweep's file, and put its text beside its name."""
    listed = root.get("plugins")
    for number, named in enumerate(listed if isinstance(listed, Items) else ()):
        try:
            match named:
                case str(name):
                    plugin = read_plugin(name, file.absolute().parent)
                case {"name": str(name), "text": str(text)}:  # the sweep of a batch job
                    plugin = Plugin(name=name, text=text)
                case _:
                    continue  # the schema says what is wrong
            if not trusted and not file.resolve().is_relative_to(Path.cwd().resolve()):
                raise PluginError(f"{file} {_UNTRUSTED}")
            plugin.run()
            put(root, ("plugins", number), {"name": plugin.name, "text": plugin.text})
        except PluginError as error:
            problems.append(Problem(place_of(root, ("plugins", number)), "plugins", str(error)))
