"""Paths in a sweep file: expand environment variables and make them absolute, so that all processes agree on them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from goal_sweep.goal_core.data.config import SHIPPED
from goal_sweep.goal_core.models.weights import NAMED_WEIGHTS
from goal_sweep.sweeps.checks import looks_secret
from goal_sweep.sweeps.reading.tree import Node, Problem
from goal_sweep.sweeps.schema import SweepConfig

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
PLACES = re.compile(r"data\.(root|annotations)|model\.backbones\.\d+\.weights|store|tracking")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_URI = re.compile(r"(?!sqlite:///|file:///)[A-Za-z][A-Za-z0-9+.-]+:/")
"""The beginning of an address that may lie on another machine."""
_MAX_PATH = 4096
_PLACES_IN_WORDS = "data.root, data.annotations, weights of a backbone, store and tracking"


def expand_environment(
    root: Node,
    environ: Mapping[str, str],
    problems: list[Problem],
    *,
    allowed: re.Pattern[str] = PLACES,
    strict: bool = True,
) -> Node:
    """Replace `${VAR}` and `${VAR:-default}` in the values of the tree that are paths.

    All other values must be the same on every machine, or a cell's id would depend on where it is computed. No variable
    becomes part of an address, because a sweep file from elsewhere could send its value there.

    Args:
        root: the sweep file, after `extends` and `--set` (the variable of an overridden value need not be set).
        environ: the environment; an empty variable counts as unset.
        problems: receives unset variables, and those in places where they are not allowed.
        allowed: the key paths, with list items by index, whose values may hold variables.
        strict: report variables where none is allowed, those that are named like a secret, and those in an address.
            Otherwise variables that are not allowed stay as they are.

    Returns:
        The new tree.
    """
    for path, leaf in list(root.leaves()):
        if not isinstance(leaf.value, str):
            continue
        already, shown = len(problems), root.shown(path)
        if strict and path[0] not in ("plugins", "name") and (odd := _CONTROL.search(leaf.value)):
            problems.append(Problem(leaf.where, shown, f"may not hold the character U+{ord(odd[0]):04X}"))
        if "${" not in leaf.value:
            continue
        if allowed.fullmatch(".".join(map(str, path))):
            text = _substitute(leaf.value, leaf, shown, environ, problems)
            if strict and len(problems) == already and (why := _secret(leaf.value, text, shown)):
                problems.append(Problem(leaf.where, shown, why))
            if len(problems) == already:  # else no further message can repeat the value
                root = root.put(path, Node(text, leaf.where))
        elif strict:
            problems.append(Problem(leaf.where, shown, f"environment variables are allowed only in {_PLACES_IN_WORDS}"))
    return root


def _substitute(text: str, leaf: Node, shown: str, environ: Mapping[str, str], problems: list[Problem]) -> str:
    if len(text) > _MAX_PATH:
        problems.append(Problem(leaf.where, shown, f"is longer than {_MAX_PATH} characters"))
        return text
    if "${" in _VARIABLE.sub("", text):
        problems.append(Problem(leaf.where, shown, "write an environment variable as ${NAME} or ${NAME:-default}"))
        return text

    def value_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        value = environ.get(name) or default
        if value is None:
            message = f"the environment variable {name} is not set; set it, or give the value with --set {shown}=..."
            problems.append(Problem(leaf.where, shown, message))
            return match.group()
        return value

    return _VARIABLE.sub(value_of, text)


def _secret(written: str, text: str, key: str) -> str:
    """Why a value with variables could show or send what nobody wants to; empty if not. Never repeats the value."""
    names = [str(match.group(1)) for match in _VARIABLE.finditer(written)]
    if hidden := [name for name in names if looks_secret(name)]:
        return f"the environment variable {hidden[0]} is named like a secret, and a path is stored and shown"
    is_path = "/" in text or text.startswith((".", "~"))
    if _URI.match(text) or (key == "tracking" and not is_path):
        return (
            f"the environment variable {names[0]} may be part of a path, but not of an address, to which its value "
            f"would be sent; write the address out, or give it with --set {key}=..."
        )
    return ""


def anchored(root: Node) -> Node:
    """Let each relative path that a file says start at the folder of this file.

    The others start at the current directory: those of `--set`, of defaults, and those that a `${VAR}` begins.
    """
    framework = root.at(("model", "framework"))
    for path, leaf in list(root.leaves()):
        folder, text = os.path.dirname(os.path.abspath(leaf.where.source)), leaf.value
        if not leaf.where.line or not isinstance(text, str) or not text:
            continue
        if text.startswith(("${", SHIPPED)) or _URI.match(text):
            continue
        match path:
            case ("data", "root") | ("store",) | ("model", "init_from"):
                text = _absolute(text, folder)
            case ("model", "backbones", _, "weights") if framework is None or framework.value != "dual":
                text = text if text in NAMED_WEIGHTS else _absolute(text, folder)
            case ("model", "backbones", _, "weights") | ("model", "bert", "weights") | ("model", "text", "encoder"):
                text = _hub_model(text, folder)
            case ("tracking",):
                text = _absolute_tracking(text, folder)
        root = root.put(path, Node(text, leaf.where))
    return root


def make_absolute(config: SweepConfig) -> SweepConfig:
    """Make the sweep's paths absolute, and replace `{store}` in `tracking` by the store's folder.

    Relative paths start at the current directory here (but see `anchored`); `~` is the home directory. URIs do not
    change, nor do `shipped:NAME` and `data.annotations`, which is relative to `data.root`.
    """
    data = config.data
    if data.root is not None and not data.root.startswith(SHIPPED):
        data = replace(data, root=_absolute(data.root))
    store, model = _absolute(config.store.removeprefix("file://")), config.model
    weights_place = _hub_model if model.framework == "dual" else _absolute
    model = replace(
        model,
        backbones=tuple(
            one if one.weights in NAMED_WEIGHTS else replace(one, weights=weights_place(one.weights))
            for one in model.backbones
        ),
        bert=replace(model.bert, weights=_hub_model(model.bert.weights)),
        text=replace(model.text, encoder=_hub_model(model.text.encoder)),
        init_from=_absolute(model.init_from) if model.init_from else "",
    )
    # Of a store in a bucket, {store} stands for a folder that each machine chooses.
    tracking = config.tracking if "://" in store else config.tracking.replace("{store}", store)
    tracking = _absolute_tracking(tracking)
    return replace(config, data=data, model=model, store=store, tracking=tracking)


def _absolute(path: str, folder: str = "") -> str:
    return path if "://" in path else os.path.abspath(os.path.join(folder, os.path.expanduser(path)))


def _hub_model(name: str, folder: str = "") -> str:
    """The absolute path of a folder, or of a file with an ending; any other name, as of the hub, unchanged."""
    place = _absolute(name, folder) if name else ""
    return place if os.path.isdir(place) or (os.path.splitext(name)[1] and os.path.isfile(place)) else name


def _absolute_tracking(uri: str, folder: str = "") -> str:
    """Make an SQLite file or a folder absolute; leave names such as `databricks` and other URIs unchanged."""
    if "{store}" in uri:
        return uri
    sqlite = re.fullmatch(r"sqlite:///(?!/)(.+)", uri)
    if sqlite:
        return f"sqlite:///{_absolute(sqlite.group(1), folder)}"
    return _absolute(uri, folder) if "/" in uri or uri.startswith((".", "~")) else uri
