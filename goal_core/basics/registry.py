"""Registries of named functions whose keyword-only arguments are their hyper-parameters, and plugins that add to them.

Plugins are Python files of the user's own that register parts, such as a pair weight. A plugin's text travels with a
unit to the machine that trains it, and its hash is part of the ids that depend on it.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from goal_sweep.goal_core.basics.errors import ConfigError, DataError, UnknownNameError
from goal_sweep.goal_core.basics.files import content_of, text_in
from goal_sweep.goal_core.basics.numerics import BUILT_IN_CODE

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[F]):
    """One registered function, with its source and parameters for the documentation and the command line."""

    name: str
    function: F
    source: str
    parameters: Mapping[str, Any]
    """Keyword-only arguments of the function and their defaults, in the order of its signature."""
    plugin: str = ""
    """The plugin that registers it; empty where none does."""
    plugin_code: str = ""
    """Hash of the plugin's text."""

    @property
    def is_built_in(self) -> bool:
        """Whether the function comes with goal-sweep and was not edited, so that `NUMERICS_VERSION` speaks for it."""
        return not self.plugin and _source_digest(self.function) in BUILT_IN_CODE

    @property
    def code(self) -> str:
        """Hash of the file or plugin that defines the function, 12 hex digits; empty for a built-in one.

        A `ConfigError` where there is none, as for a function typed into an interpreter.
        """
        if self.plugin or self.is_built_in:
            return self.plugin_code
        try:
            return _digest(Path(inspect.getfile(inspect.unwrap(self.function))).read_bytes())
        except (OSError, TypeError) as error:
            why = "so results of different code could not be told apart"
            raise ConfigError(f"{self.name!r} is not defined in a file, {why}") from error


@cache
def _source_digest(function: Callable[..., Any]) -> str:
    try:
        return _digest(inspect.getsource(function).encode())
    except (OSError, TypeError):
        return ""


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


REGISTRIES: dict[str, Registry[Any]] = {}
"""Every registry of the process by the name of its kind, such as `pair_weights`, which is also its name in Python."""
running: list[tuple[str, str]] = []
"""The name and the hash of the plugin that runs now, to which belongs what is registered meanwhile."""
_NAME, _RESERVED = re.compile(r"[\w.+-]+"), ("all", "loss")
"""What a part may be called: names are joined with `/` and listed with commas."""


class Registry(dict[str, Entry[F]]):
    """Maps names to functions, in order of registration; an unknown one is an :class:`UnknownNameError`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        REGISTRIES[f"{kind.replace(' ', '_')}s"] = self

    @property
    def shipped(self) -> tuple[str, ...]:
        """The names that no plugin has registered."""
        return tuple(name for name, entry in self.items() if not entry.plugin)

    def register(self, name: str, *, source: str = "") -> Callable[[F], F]:
        """Decorator that adds a function under the name that sweep files, tables and MLflow use.

        Its keyword-only arguments need defaults, in a plugin such as a sweep file can hold. ``source`` is paper and
        equation.
        """

        def add(function: F) -> F:
            here, (plugin, code) = self.get(name), running[-1] if running else ("", "")
            if here is not None and not (code and here.plugin_code == code and here.plugin != plugin):
                other = f"; the other comes with {here.plugin or 'goal-sweep'}" if code else ""
                raise ValueError(f"{self.kind} {name!r} is registered twice{other}")
            if not _NAME.fullmatch(name) or name in _RESERVED:
                raise ValueError(f"the name {name!r} must be letters, digits and _ . + -, and not all or loss")
            arguments = inspect.signature(function).parameters.values()
            parameters = {one.name: one.default for one in arguments if one.kind is one.KEYWORD_ONLY}
            for argument, default in parameters.items():
                if default is inspect.Parameter.empty or (code and not isinstance(default, bool | int | float | str)):
                    raise TypeError(f"{self.kind} {name!r}: {argument!r} needs a number, text or truth value")
            own = {"plugin": plugin, "plugin_code": code}
            self[name] = Entry(name=name, function=function, source=source or plugin, parameters=parameters, **own)
            return function

        return add

    def __missing__(self, name: str) -> Entry[F]:
        raise UnknownNameError(self.kind, name, self)


_ran: dict[str, str] = {}  # the digests of the plugins that have run in this process, by name


class PluginError(ConfigError):
    """A plugin is wrong; the message names it and the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A Python file that registers parts of one's own."""

    name: str
    """Its path, or its name as a module."""
    text: str
    """Its source, complete."""

    @property
    def digest(self) -> str:
        """Hash of its text, 12 hex digits: part of the id of each cell that uses one of its parts."""
        return _digest(self.text.encode())

    @property
    def kinds(self) -> set[str]:
        """The kinds of parts that it has registered in this process, such as `pair_weights`."""
        code = self.digest
        return {kind for kind, parts in REGISTRIES.items() if any(one.plugin_code == code for one in parts.values())}

    def run(self) -> None:
        """Run it, so that its parts can be used. A second call does nothing; an edited text takes its names anew.

        A `PluginError` says if it raises, exits, registers nothing or a taken name, or changes how torch computes.
        """
        if _ran.get(self.name) == self.digest:
            return
        _ran.pop(self.name, None)
        for registry in REGISTRIES.values():
            for part in [part for part, entry in registry.items() if entry.plugin == self.name]:
                del registry[part]
        file, module, before = f"<{self.name}>", ModuleType(f"goal_sweep_plugin_{self.digest}"), _arithmetic()
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)  # for traces
        sys.modules[module.__name__] = module
        running.append((self.name, self.digest))
        try:
            exec(compile(self.text, file, "exec"), module.__dict__)
            if not self.kinds:
                raise ValueError(f"registers nothing; it needs @KIND.register(name), KIND of {', '.join(REGISTRIES)}")
            if _arithmetic() != before:
                raise ValueError("changes torch's default dtype, device or precision, and so the numbers of every cell")
        except (Exception, SystemExit) as error:
            del sys.modules[module.__name__]
            lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
            line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise PluginError(f"plugin {self.name}{f':{line}' if line else ''}: {said}") from error
        finally:
            running.pop()
        _ran[self.name] = self.digest


def _arithmetic() -> tuple[object, ...]:
    """The settings of torch that are the process's and decide what all cells compute."""
    import torch  # which reading a plugin does without

    return torch.get_default_dtype(), torch.get_default_device(), torch.get_float32_matmul_precision()


def place_in(error: BaseException) -> str:
    """The plugin and line where an error was raised, as the beginning of a message; empty if it was none of theirs."""
    frames = ((frame.filename[1:-1], frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    return ([""] + [f"plugin {name}:{line}: " for name, line in frames if name in _ran])[-1]


def read_plugin(name: str, folder: Path) -> Plugin:
    """Read a plugin without running it; a `PluginError` where it is not there or cannot be read.

    Its name is a path, relative to the folder; or a module that Python finds, or an entry point of the group
    `goal_sweep.plugins` that an installed package declares.
    """
    if name.endswith(".py"):
        path = (folder / name).expanduser().resolve()
        name = str(path)
    else:
        declared = {one.name: one.module for one in entry_points(group="goal_sweep.plugins")}
        spec = None
        with suppress(ImportError, ValueError):
            spec = find_spec(declared.get(name, name))
        if spec is None or not spec.origin:
            raise PluginError(f"plugin {name}: no such module; a file's name ends in .py")
        path = Path(spec.origin)
    try:
        return Plugin(name=name, text=text_in(content_of(path), path).replace("\r\n", "\n"))  # ids as on Unix
    except DataError as error:
        raise PluginError(f"plugin {error}") from None


def run_plugins(names: Iterable[str]) -> None:
    """Run plugins by their names, relative to the current folder; names and errors as for :func:`read_plugin`."""
    for name in names:
        read_plugin(name, Path()).run()
