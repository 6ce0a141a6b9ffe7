"""What happens to a sweep file before it is checked.

It is merged over the one that it extends, made small (`SWEEP+smoke`: to try it on a CPU within a minute), and changed
by overrides (`--set key=value`). Environment variables in its paths are expanded, and these made absolute, so that all
processes agree on them.
"""

import os
import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from goal_sweep.goal_core.basics.errors import ConfigError, nearest
from goal_sweep.goal_core.data.config import FORMATS, SHIPPED
from goal_sweep.goal_core.models.config import ModelParts
from goal_sweep.goal_core.models.frameworks import frameworks
from goal_sweep.goal_core.models.weights import NAMED_WEIGHTS
from goal_sweep.sweeps.checks import looks_secret
from goal_sweep.sweeps.reading.document import Document, KeyPath, Problem, Where, name_of, parse_yaml

_SHARED = ("image", "min_word_count")
"""What data of one format take over from those of another, if both have it."""


def merge(base: Document, over: Document, path: KeyPath = ()) -> None:
    """Merge a document into what another has at a path. Each value keeps its place.

    Mappings merge key by key. A list replaces the other list, unless all its items are mappings with a `name` (stages,
    backbones). Those merge by name: items of the same name merge, new ones are appended, and a plain name in the base
    list counts as a mapping with that name. Backbones that only the base has go. `data` of another
    `format` replaces the section, but for `image` and `min_word_count` where it has them. A `model` of another
    `framework` takes over what that has, too. A setting in `tune.space` replaces the other's values.
    """
    below, value = base.at(path), over.content
    if isinstance(below, dict) and isinstance(value, dict):
        if path == ("data",) and (other := value.get("format", below.get("format"))) != below.get("format"):
            kind = FORMATS.get(str(other))
            names = {one.name for one in fields(kind)} if kind else set[str]()
            shared = {key: base.below((*path, key)) for key in _SHARED if key in below and key in names}
            base.graft(path, replace(over, content={}))
            for key, own in shared.items():
                base.graft((*path, key), own)
        name = str(value.get("framework", ""))
        if path == ("model",) and name in frameworks and name != below.get("framework", "vsepp"):
            for part in fields(ModelParts):
                if part.default_factory is not MISSING and part.name not in frameworks[name].function().uses:
                    below.pop(part.name, None)
        if path[:2] != ("tune", "space") or len(path) != 3:
            for key in value:
                merge(base, over.below((key,)), (*path, key))
            base.places[path] = over.place(())
            return
    if isinstance(below, list) and isinstance(value, list) and value and None not in map(name_of, value):
        old = replace(base.below(path), content=with_names(below))
        if None not in map(name_of, old.content):
            _merge_named(base, old, over, path)
            return
    base.graft(path, over)


def _merge_named(base: Document, old: Document, over: Document, path: KeyPath) -> None:
    kept = set(map(name_of, over.content if path == ("model", "backbones") else old.content))
    numbers = [number for number, item in enumerate(old.content) if name_of(item) in kept]
    merged: list[Any] = [{} for _ in numbers]
    base.put(path, merged)
    base.places[path] = over.place(())
    for here, number in enumerate(numbers):
        base.graft((*path, here), old.below((number,)))
    known = {name_of(item): here for here, item in enumerate(merged)}
    for number, item in enumerate(over.content):
        here = known.pop(name_of(item), len(merged))
        if here == len(merged):  # a name given twice stays twice, so that validation reports it
            merged.append(next((deepcopy(one) for one in merged if name_of(one) == name_of(item)), {}))
        merge(base, over.below((number,)), (*path, here))


def with_names(items: list[Any]) -> list[Any]:
    """A list with the mapping that it stands for in the place of each plain name."""
    return [{"name": item} if isinstance(item, str) else item for item in items]


MORE_SEEDS = re.compile(r"\+[1-9][0-9]{0,3}")
"""So many more seeds than the file names."""


def apply_override(root: Document, text: str, problems: list[Problem]) -> None:
    """Replace one value of a sweep by `a.b=value`, where the value is YAML.

    List items are addressed by name or index (`stages.frozen.epochs=2`, `seeds.0=7`). A mapping or list replaces the
    whole old one. `seeds=+4` appends to the seeds the four that follow the highest. An unknown key is set all the same;
    validation, which knows the keys, reports it.
    """
    key, equals, raw = text.partition("=")
    key, message = key.strip(), ""
    words, where = key.split("."), Where(f"--set {key}")
    path, left = root.resolve(words)
    above = root.at(path)
    if not equals or not all(words):
        where, message = Where(f"--set {key}{equals}"), "write key=value"
    elif key == "extends":
        message = "only a file can extend another; write `extends` into a sweep file instead"
    elif key == "cluster":
        message = "give one setting, such as cluster.slurm.nodes=2"
    elif left and isinstance(above, list):
        known = [name_of(item) or str(index) for index, item in enumerate(above)]
        message = f"{root.shown(path)} has no item {left[0]!r}{nearest(left[0], known)}; it has {', '.join(known)}"
    elif left and above is not None and not isinstance(above, dict):
        message = f"{root.shown(path)} is a single value, there is nothing below it"
    elif re.search(r"(^|\s)#", raw) and raw.lstrip()[:1] not in ("'", '"', "[", "{"):
        mend = f"leave it out, or quote the value if the # belongs to it: '{key}=\"{raw}\"'"
        message = f"a # there begins a comment; {mend}"
    elif key == "seeds" and MORE_SEEDS.fullmatch(raw):
        if {*map(type, seeds := _items(above))} == {int}:
            raw = str([*seeds, *range(max(seeds) + 1, max(seeds) + 1 + int(raw))])
        else:
            message = "more seeds follow those of the sweep file, which has no list of whole numbers there"
    if message:
        problems.append(Problem(where, "", message))
        return
    already = len(problems)
    value = parse_yaml(raw, where.source, problems, lines=False)
    if len(problems) == already:
        root.graft((*path, *left), value)


SUFFIX: Final = "+smoke"
"""What follows a sweep's name or path to make it small."""
_DATA: Final = {"format": "scenes", "num_train": 64, "num_val": 16, "num_test": 16, "min_word_count": 1}
_BERT: Final = {"weights": "random", "layers": 2, "width": 64, "heads": 2}
_PARTS: Final[dict[str, dict[str, Any]]] = {
    "vsepp": {"text": {"word_dim": 32}},
    "vse_infty": {"bert": _BERT},
    "xvlm": {"bert": _BERT, "xvlm": {"fusion_layer": 1, "rerank_top": 4}},
}
"""The small parts of each framework whose models can be made up."""
_STAGE: Final = {"epochs": 1, "batch_size": 16}
_KEPT: Final = "name lr optimizer weight_decay beta2 schedule lr_warmup grad_clip drop_last bn_mode".split()


def shrunk(root: Document, problems: list[Problem]) -> Document:
    """Make a sweep small: two objectives, one seed, one epoch of drawn pictures, a small random backbone, one CPU.

    Its framework, stages and optimisers stay, its plugins, its store and its tracking. Its name gets `-smoke`.
    """
    framework = str(root.at(("model", "framework")) or "vsepp")
    if framework not in _PARTS:
        message = f"{SUFFIX} makes up pictures and a model, as it can for {', '.join(_PARTS)}; got {framework}"
        problems.append(Problem(root.place(()), "model.framework", message))
    backbone = "swin_mini_patch8_window4" if framework == "xvlm" else "test_resnet"
    own = {"backbones": [{"name": backbone, "weights": "random"}], "embed_dim": 64, **_PARTS.get(framework, {})}
    augment = root.at(("data", "image", "augment")) or "none"
    names = {key: found for key in ("pair", "triplet") if (found := _items(root.at(("objectives", key))))}
    grid = [f"{pair}/{triplet}" for pair in names.get("pair", ["con"]) for triplet in names.get("triplet", ["con"])]
    chosen = _items(root.at(("objectives", "only"))) or grid
    small = {
        "name": f"{root.at(('name',))}-smoke",
        "data": {**_DATA, "image": {"size": 64, "resize": 64, "augment": augment}},
        "model": {"framework": framework, **own},
        "objectives": {**names, "only": list(dict.fromkeys([chosen[0], chosen[-1]]))},
        "seeds": _items(root.at(("seeds",)))[:1] or [1],
        "stages": [
            {**{key: (_items(stage[key]) or [stage[key]])[0] for key in _KEPT if key in stage}, **_STAGE}
            for stage in _items(root.at(("stages",)))
            if isinstance(stage, dict)
        ],
        "execution": {"sharing": root.at(("execution", "sharing")) or "auto"},
    }
    kept = {key: root.content[key] for key in ("plugins", "store", "tracking") if key in root.content}
    return Document({**small, **kept}, root.places)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}$]*))?\}")
PLACES = re.compile(r"data\.(root|annotations)|model\.backbones\.\d+\.weights|store|tracking\.uri")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_URI = re.compile(r"(?!sqlite:///|file:///)[A-Za-z][A-Za-z0-9+.-]+:/")
"""The beginning of an address that may lie on another machine."""
_PLACES_IN_WORDS = "data.root, data.annotations, weights of a backbone, store and tracking"


def expand_environment(
    root: Document,
    environ: Mapping[str, str],
    problems: list[Problem],
    *,
    allowed: re.Pattern[str] = PLACES,
    strict: bool = True,
) -> None:
    """Replace `${VAR}` and `${VAR:-default}` in the values that are paths.

    All other values must be the same on every machine, or a cell's id would depend on where it is computed. No variable
    becomes part of an address, because a sweep file from elsewhere could send its value there. If not `strict`,
    variables in other places than `allowed` stay as they are, and none is refused for its name or place.
    """
    for path, text in root.texts():
        key = root.shown(path)
        try:
            if strict and path[0] not in ("plugins", "name") and (odd := _CONTROL.search(text)):
                raise ConfigError(f"may not hold the character U+{ord(odd[0]):04X}")
            if "${" in text and allowed.fullmatch(".".join(map(str, path))):
                expanded = _expanded(text, environ)
                if strict:
                    _check_secret(text, expanded, key)
                root.put(path, expanded)
            elif "${" in text and strict:
                raise ConfigError(f"environment variables are allowed only in {_PLACES_IN_WORDS}")
        except ConfigError as error:
            problems.append(Problem(root.place(path), key, str(error)))


def _expanded(text: str, environ: Mapping[str, str]) -> str:
    if "${" in _VARIABLE.sub("", text):
        raise ConfigError("write an environment variable as ${NAME} or ${NAME:-default}")
    if unset := [one[1] for one in _VARIABLE.finditer(text) if not environ.get(one[1]) and one[2] is None]:
        raise ConfigError(f"the environment variable {unset[0]} is not set; set it, or give the value with --set")
    return _VARIABLE.sub(lambda one: environ.get(one[1]) or one[2], text)


def _check_secret(written: str, text: str, key: str) -> None:
    """Refuse a value with variables that could show or send what nobody wants to. Never repeats the value."""
    names = [one[1] for one in _VARIABLE.finditer(written)]
    if hidden := [name for name in names if looks_secret(name)]:
        raise ConfigError(
            f"the environment variable {hidden[0]} is named like a secret, and a path is stored and shown"
        )
    if _URI.match(text) or (key == "tracking.uri" and "/" not in text and not text.startswith((".", "~"))):
        raise ConfigError(
            f"the environment variable {names[0]} may be part of a path, but not of an address, to which its value "
            f"would be sent; write the address out, or give it with --set {key}=..."
        )


def make_absolute(root: Document, *, expanded: bool) -> None:
    """Let relative paths start at the folder of the file that says them, those of a `--set` at the current one.

    Once `${VAR}` are expanded, what is still relative, because a variable began it, starts at the current one.
    """
    is_dual = root.at(("model", "framework")) == "dual"
    for path, text in root.texts():
        where = root.place(path)
        folder = os.path.dirname(os.path.abspath(where.source)) if where.line and not expanded else os.getcwd()
        if text and not text.startswith(("${", SHIPPED)) and not _URI.match(text):
            root.put(path, _absolute_at(path, text, folder, is_dual=is_dual))


def _absolute_at(path: KeyPath, text: str, folder: str, *, is_dual: bool) -> str:
    """The value at a path with the path in it made absolute; URIs and names on a hub do not change."""
    place = os.path.abspath(os.path.join(folder, os.path.expanduser(text)))
    match path:
        case ("data", "root") | ("model", "init_from"):
            return place
        case ("store",):
            return place if "://" not in text else text.removeprefix("file://")
        case ("model", "backbones", _, "weights") if not is_dual:
            return text if text in NAMED_WEIGHTS else place
        case ("model", "backbones", _, "weights") | ("model", "bert", "weights") | ("model", "text", "encoder"):
            is_file = os.path.splitext(text)[1] and os.path.isfile(place)
            return place if os.path.isdir(place) or is_file else text
        case ("tracking", "uri") if sqlite := re.fullmatch(r"sqlite:///(?!/)([^{].*)", text):
            return f"sqlite:///{os.path.abspath(os.path.join(folder, os.path.expanduser(sqlite[1])))}"
        case ("tracking", "uri") if "{store}" not in text and "://" not in text and ("/" in text or text[0] in ".~"):
            return place
    return text
