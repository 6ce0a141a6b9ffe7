"""A registry of named functions whose keyword-only arguments are their hyper-parameters."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

        A `ConfigError` where there is none, as for a function typed into an interpreter.
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
            self[name] = Entry(
                name=name, function=function, source=source or plugin, parameters=parameters, plugin=plugin,
                plugin_code=code,
            )  # fmt: skip
            return function

        return add

    def __missing__(self, name: str) -> Entry[F]:
        raise UnknownNameError(self.kind, name, self)
