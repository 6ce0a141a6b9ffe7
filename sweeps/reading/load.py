"""Find a sweep, and turn its file, the files it extends and the overrides into one checked `SweepConfig`."""

import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from goal_sweep.goal_core.basics.errors import GoalError, nearest
from goal_sweep.goal_core.basics.registry import Plugin, PluginError, read_plugin
from goal_sweep.goal_core.data.config import DataConfig
from goal_sweep.goal_core.objectives.weights import pair_weights, triplet_weights
from goal_sweep.sweeps.clusters import ClusterConfig
from goal_sweep.sweeps.reading import changes
from goal_sweep.sweeps.reading.document import Document, Problem, SweepError, Where, name_of, read_mapping
from goal_sweep.sweeps.reading.validation import validate, validate_lists
from goal_sweep.sweeps.schema import SweepConfig, SweepData, SweepPlaces

T = TypeVar("T")
_OF_CLUSTERS = "settings of clusters stand in the site file or in --set cluster..., because sweeps are passed on"
_NO_AXES = "unknown key; write a list of values in the place of the setting, such as objectives.params.tau"
_UNTRUSTED = "lies outside the current folder, so no plugin of it runs; start in its folder, or give --trust-plugins"
_OUTSIDE = "lies outside the folder of the sweep and the current directory; copy it there, or start from a folder above"
_SITE_VARIABLES = re.compile(r"(?!slurm\.setup\.).*")
"""Where `${VAR}` means a variable of this machine: in all but shell of the node."""
_FOLDER = Path(__file__).parent.parent


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

    Relative paths start at the folder of the file that says them, those of overrides and defaults at the current one.
    Raises `SweepNotFoundError`, or a `SweepError` that lists all mistakes, each as `file:line: key.path: message`.

    Args:
        path_or_name: a sweep file, or the name of a shipped sweep with or without `.yaml`; an existing file wins.
            `+smoke` after it makes the sweep small, before `overrides`.
        overrides: each `key.path=value`, with the value in YAML; later ones win.
        trusted: also run plugins of a sweep that lies outside the current folder.
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
    """Read and check a sweep as `load_sweep` does, with the settings of clusters in `site` and in `overrides`.

    The sweep's `${VAR}` see the `environment` of the named kind of cluster, then `environ`, then those of all kinds.
    """
    file = _File(path_or_name, overrides, site, kind, os.environ if environ is None else environ)
    # Without a plugin, each name that it registers would be unknown, too.
    config = file.checked(validate_lists(file.root, file.problems) if file.run_plugins(trusted=trusted) else None)
    return ClusterSweep(config=config, cluster=file.checked(file.cluster), plain=file.plain)


def load_places(path_or_name: str | Path, overrides: Sequence[str] = (), *, site: Path | None = None) -> SweepPlaces:
    """Read where a sweep's results are, and run no plugin; arguments and errors as those of `load_for_cluster`.

    The whole sweep is checked, and is what is returned, unless it has plugins.
    """
    file = _File(path_or_name, overrides, site, "", os.environ)
    has_plugins = file.root.at(("plugins",))
    return file.checked(file.part(SweepPlaces) if has_plugins else validate_lists(file.root, file.problems))


def load_data(path_or_name: str | Path) -> DataConfig:
    """Read the `data` of a sweep file, which may lack all else, and run its plugins; errors as of `load_sweep`."""
    file = _File(path_or_name, (), None, "", os.environ)
    return file.checked(file.part(SweepData) if file.run_plugins(trusted=False) else None).data


def placed(path_or_name: str, overrides: Sequence[str], key: str, message: str) -> str:
    """A message about a setting of a sweep that can be read, as in a `SweepError`: `file:line: key.path: message`."""
    file = _File(path_or_name, overrides, None, "", os.environ)
    return str(file.told(Problem(file.root.place(file.root.resolve(key.split("."))[0]), key, message)))


class _File:
    """A sweep file after `extends`, `--set` and `${VAR}`, not yet checked; a `SweepError` if it cannot be read."""

    def __init__(
        self, named: str | Path, overrides: Sequence[str], site: Path | None, kind: str, environ: Mapping[str, str]
    ) -> None:
        self.problems, self.sources, self._shipped = list[Problem](), list[str](), set[str]()
        is_small = str(named).endswith(changes.SUFFIX) and not Path(named).exists()
        self._path = find_sweep(str(named).removesuffix(changes.SUFFIX) if is_small else named)
        root = self._merged(self._path, ())
        self._refuse(root, "cluster", _OF_CLUSTERS)
        _spell_out(root)
        self.root = changes.shrunk(root, self.problems) if is_small else root
        no_site = Document({}, {(): Where("")})
        own = read_mapping(site, "a site file", self.problems, self.sources) if site else no_site
        self.root.graft(("cluster",), own)
        for override in overrides:
            changes.apply_override(self.root, override, self.problems)
            _spell_out(self.root)
        self._refuse(self.root, "axes", _NO_AXES)
        of_cluster = self.root.below(("cluster",))
        del self.root.content["cluster"]
        changes.expand_environment(of_cluster, environ, self.problems, allowed=_SITE_VARIABLES, strict=False)
        self.cluster = validate(of_cluster, ClusterConfig, self.problems)
        changes.make_absolute(self.root, expanded=False)
        self.plain = deepcopy(self.root.content)
        self._expand(kind, environ)

    def _refuse(self, root: Document, key: str, why: str) -> None:
        if root.content.pop(key, None) is not None:
            self.problems.append(Problem(root.place((key,)), key, why))

    def checked(self, found: T | None) -> T:
        """What was found; a `SweepError` with all problems if there are any."""
        if self.problems or found is None:
            raise SweepError(map(self.told, self.problems), self.sources)
        return found

    def told(self, problem: Problem) -> Problem:
        """A problem as it is told: one of a setting from a shipped sweep with the line for the user's own file."""
        own = self.sources[0]
        if problem.where.source not in self._shipped or own in self._shipped or not problem.path:
            return problem
        path, left = self.root.resolve(problem.path.split("."))
        text = "..."
        for number, part in reversed([*enumerate([*path, *left], 1)]):
            name = name_of(self.root.at(path[:number]))
            item = f"[{{name: {name}, {text[1:]}]" if name and text[0] == "{" else "[...]"
            text = item if isinstance(part, int) else f"{{{part}: {text}}}"
        return Problem(Where(own), problem.path, f"{problem.message}; {own} needs: {text[1:-1]}")

    def _merged(self, path: Path, above: tuple[Path, ...]) -> Document:
        root = read_mapping(path, "a sweep file", self.problems, self.sources)
        root.content.setdefault("name", path.stem.lower().replace(" ", "-"))  # of its own: two would write one report
        _spell_out_tracking(root)
        if path.parent == _FOLDER:
            self._shipped.add(self.sources[-1])
        if "extends" not in root.content:
            return root
        named, chain = root.content.pop("extends"), (*above, path.resolve())
        try:
            base = _base(named, path.parent, chain)
        except SweepNotFoundError as error:
            raise SweepError([Problem(root.place(("extends",)), "extends", str(error))]) from error
        merged = self._merged(base, chain)
        changes.merge(merged, root)
        return merged

    def _expand(self, kind: str, environ: Mapping[str, str]) -> None:
        kinds = () if self.cluster is None else fields(self.cluster)
        of_kind = {one.name: getattr(self.cluster, one.name).environment for one in kinds}
        anywhere = {key: value for one in of_kind.values() for key, value in one.items()}
        changes.expand_environment(self.root, {**anywhere, **environ, **of_kind.get(kind, {})}, self.problems)
        root = self.root.content
        for item in fields(SweepPlaces):
            if item.default is not MISSING:
                root.setdefault(item.name, item.default)
        changes.make_absolute(self.root, expanded=True)

    def part(self, kind: type[T]) -> T | None:
        """Some of the settings, without a look at the others; None if they are wrong."""
        names = [item.name for item in fields(kind)]  # type: ignore[arg-type]  # a dataclass
        own = {key: value for key, value in self.root.content.items() if key in names}
        return validate(replace(self.root, content=own), kind, self.problems)

    def run_plugins(self, *, trusted: bool) -> bool:
        """Run each plugin, and put its text beside its name; False, and a problem, where one fails."""
        already, listed = len(self.problems), self.root.at(("plugins",))
        for number, named in enumerate(listed if isinstance(listed, list) else ()):
            try:
                match named:
                    case str(name):
                        plugin = read_plugin(name, self._path.absolute().parent)
                    case {"name": str(name), "text": str(text)}:  # the sweep of a batch job
                        plugin = Plugin(name=name, text=text)
                    case _:
                        continue  # the schema says what is wrong
                if not trusted and not self._path.resolve().is_relative_to(Path.cwd().resolve()):
                    raise PluginError(f"{self._path} {_UNTRUSTED}")
                plugin.run()
                self.root.put(("plugins", number), {"name": plugin.name, "text": plugin.text})
            except PluginError as error:
                self.problems.append(Problem(self.root.place(("plugins", number)), "plugins", str(error)))
        return len(self.problems) == already


def _base(named: object, folder: Path, chain: Sequence[Path]) -> Path:
    """The file that an `extends` names; a `SweepNotFoundError` if there is none, or it may not be read."""
    if not isinstance(named, str):
        raise SweepNotFoundError("must be a file's path or the name of a shipped sweep")
    base = find_sweep(named, folder)
    if base.resolve() in chain:
        raise SweepNotFoundError(f"{base} and this file extend each other")
    if not any(base.resolve().is_relative_to(place.resolve()) for place in (chain[0].parent, Path.cwd(), _FOLDER)):
        raise SweepNotFoundError(f"{base} {_OUTSIDE}")
    return base


def _spell_out(root: Document) -> None:
    """Expand abbreviations: a backbone's plain name becomes a mapping, `all` becomes the list of shipped weights."""
    _spell_out_tracking(root)
    if isinstance(backbones := root.at(("model", "backbones")), list):
        root.put(("model", "backbones"), changes.with_names(backbones))
    for path, names in ((("objectives", "pair"), pair_weights), (("objectives", "triplet"), triplet_weights)):
        if root.at(path) in ("all", ["all"]):
            root.put(path, list(names.shipped))


def _spell_out_tracking(root: Document) -> None:
    """Of each file before it is merged, because the URI of one must not take away what another has beside it."""
    if isinstance(uri := root.at(("tracking",)), str):
        root.put(("tracking",), {"uri": uri})


def list_shipped() -> list[str]:
    """Names of the sweeps that ship with the project, in alphabetical order, without `.yaml`."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def is_named_sweep(word: str) -> bool:
    """Whether a word of a command line stands for a sweep, not for a checkpoint; its file need not exist."""
    name = word.removesuffix(changes.SUFFIX)
    return name != word or name.endswith((".yaml", ".yml")) or name in list_shipped()


def find_sweep(sweep: str | Path, folder: Path | None = None) -> Path:
    """Find the file that a SWEEP argument or an `extends` in a `folder` names: one that exists, or a shipped sweep.

    Raises `SweepNotFoundError` where there is none.
    """
    path = (folder or Path()) / Path(sweep).expanduser()
    if os.path.isfile(path):  # False also for a name that is too long for a file
        return path
    name, names = str(sweep).removesuffix(".yaml").removesuffix(".yml"), list_shipped()
    if name in names:
        return _FOLDER / f"{name}.yaml"
    files, is_file = [one.name for one in sorted(path.parent.glob("*.y*ml"))], name != str(sweep)
    hint = nearest(path.name, [*files, *(f"{one}.yaml" if is_file else one for one in names)])
    if f"{path.name}.yaml" in files:
        hint = f" (did you mean {path.name}.yaml?)"
    elif not is_file:
        hint += f"; shipped sweeps: {', '.join(names)}"
    raise SweepNotFoundError(f"sweep {str(sweep)!r} is neither a file nor the name of a shipped sweep{hint}")
