"""Errors a user can act on. Everything else that escapes is a bug of ours.

Each message says which rule broke, the value received, and what is allowed. The command line prints it as
one line and exits with 2; a traceback appears only with ``--debug``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GoalError(ValueError):
    """Base of all errors that a user's input or data can cause."""


class ConfigError(GoalError):
    """A setting is wrong, or does not fit another setting."""


class DataError(GoalError):
    """A dataset is missing, incomplete or not of the layout it claims."""


class WeightsError(GoalError):
    """Weights are missing, or do not fit the architecture they are loaded into."""


class DeviceError(GoalError):
    """The device that was asked for is not there."""


class FencedError(GoalError):
    """A write was refused because another attempt owns the cell by now; whoever sees it stops, quietly."""


class UnknownNameError(ConfigError):
    """A name that no registry holds."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        options = list(known)
        super().__init__(f"unknown {kind} {name!r}{nearest(name, options)}; known: {', '.join(options)}")
        self.kind, self.name, self.known = kind, name, tuple(options)


def nearest(name: str, options: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the option closest to ``name``, or an empty string when none is close."""
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
