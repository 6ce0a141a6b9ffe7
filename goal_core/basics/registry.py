"""A registry of named functions whose keyword-only arguments are their hyper-parameters."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from goal_core.basics.errors import ConfigError, UnknownNameError
from goal_core.basics.numerics import BUILT_IN_CODE

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[F]):
    """One registered function, with its source and parameters for the documentation and the command line."""

    name: str
    function: F
    source: str
    parameters: Mapping[str, Any]
    """Keyword-only arguments of the function and their defaults, in the order of its signature."""

    @property
    def is_built_in(self) -> bool:
        """Whether the function comes with goal-sweep and was not edited, so that `NUMERICS_VERSION` speaks for it."""
        return _source_digest(self.function) in BUILT_IN_CODE

    @property
    def code(self) -> str:
        """Hash of the file that defines the function, 12 hex digits; empty for a built-in one.

        Raises:
            ConfigError: there is no such file, as for a function typed into an interpreter.
        """
        if self.is_built_in:
            return ""
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


class Registry(dict[str, Entry[F]]):
    """Maps names to functions, in order of registration; each name can be registered once.

    An unknown name is an :class:`UnknownNameError`, which suggests the closest.

    Args:
        kind: what the entries are, for error messages, such as ``"pair weight"``.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def register(self, name: str, *, source: str) -> Callable[[F], F]:
        """Decorator that adds a function under ``name``.

        Args:
            name: the word used in sweep files, tables and MLflow.
            source: paper and equation that the function implements.

        Raises:
            ValueError: the name is taken.
            TypeError: a keyword-only argument has no default.
        """

        def add(function: F) -> F:
            if name in self:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
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
