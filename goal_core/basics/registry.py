"""A registry of named functions whose keyword-only arguments are their hyper-parameters."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from goal_sweep.goal_core.basics.errors import ConfigError, UnknownNameError
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

        Raises:
            ConfigError: there is no such file, as for a function typed into an interpreter.
        """
        if self.plugin or self.is_built_in:
            return self.plugin_code
        try:
            return _digest(Path(inspect.getfile(inspect.unwrap(self.function))).read_bytes())
        except (OSError, TypeError) as error:
            raise ConfigError(
                f"{self.name!r} is not defined in a file, so results of different code could not be told apart"
            ) from error


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
running: list[str] = []
"""The hash of the text of the plugin that runs now, to which belongs what is registered meanwhile."""


class Registry(dict[str, Entry[F]]):
    """Maps names to functions, in order of registration; each name can be registered once.

    An unknown name is an :class:`UnknownNameError`, which suggests the closest.

    Args:
        kind: what the entries are, for error messages, such as ``"pair weight"``.
        until_run: takes the place of a part whose plugin has not run; None: calling it is an error.
    """

    def __init__(self, kind: str, until_run: F | None = None) -> None:
        super().__init__()
        self.kind, self._until_run = kind, until_run
        REGISTRIES[f"{kind.replace(' ', '_')}s"] = self

    @property
    def shipped(self) -> tuple[str, ...]:
        """The names that no plugin has registered."""
        return tuple(name for name, entry in self.items() if not entry.plugin)

    def announce(self, entry: Entry[F]) -> None:
        """Take a name for a plugin that has not run. A new text of the same plugin, or the same text, takes it anew.

        Raises:
            ValueError: the name is taken.
        """
        here = self.get(entry.name)
        if here is not None and here.plugin != entry.plugin and here.plugin_code != entry.plugin_code:
            raise ValueError(
                f"{self.kind} {entry.name!r} is registered twice; the other comes with {here.plugin or 'goal-sweep'}"
            )
        if here is None or here.plugin_code != entry.plugin_code:
            self[entry.name] = entry if self._until_run is None else replace(entry, function=self._until_run)

    def register(self, name: str, *, source: str = "") -> Callable[[F], F]:
        """Decorator that adds a function under ``name``.

        Args:
            name: the word used in sweep files, tables and MLflow.
            source: paper and equation that the function implements.

        Raises:
            ValueError: the name is taken, or a plugin registers it in a way that its text does not show.
            TypeError: a keyword-only argument has no default.
        """

        def add(function: F) -> F:
            here = self.get(name)
            if here is not None and not (running and here.plugin_code == running[-1]):
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            if here is not None:
                self[name] = replace(here, function=function, source=source or here.source)
                return function
            if running:
                raise ValueError(f"{self.kind} {name!r} must be registered by a decorator with its name written out")
            parameters = {}
            for argument in inspect.signature(function).parameters.values():
                if argument.kind is not inspect.Parameter.KEYWORD_ONLY:
                    continue
                if argument.default is inspect.Parameter.empty:
                    raise TypeError(f"{self.kind} {name!r}: parameter {argument.name!r} needs a default")
                parameters[argument.name] = argument.default
            self[name] = Entry(name=name, function=function, source=source, parameters=parameters)
            return function

        return add

    def __missing__(self, name: str) -> Entry[F]:
        raise UnknownNameError(self.kind, name, self)
