"""Paths in a sweep file: expand environment variables and make them absolute, so that all processes agree on them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.data.config import SHIPPED
from goal_sweep.goal_core.models.weights import NAMED_WEIGHTS
from goal_sweep.sweeps.checks import looks_secret
from goal_sweep.sweeps.reading.document import Document, KeyPath, Problem

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}$]*))?\}")
PLACES = re.compile(r"data\.(root|annotations)|model\.backbones\.\d+\.weights|store|tracking")
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
    if _URI.match(text) or (key == "tracking" and "/" not in text and not text.startswith((".", "~"))):
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
        case ("tracking",) if sqlite := re.fullmatch(r"sqlite:///(?!/)([^{].*)", text):
            return f"sqlite:///{os.path.abspath(os.path.join(folder, os.path.expanduser(sqlite[1])))}"
        case ("tracking",) if "{store}" not in text and "://" not in text and ("/" in text or text[0] in ".~"):
            return place
    return text
