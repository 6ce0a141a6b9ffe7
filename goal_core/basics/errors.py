"""Errors that a user can act on. Any other exception that escapes is a bug.

Each message says which rule was broken, the value received, and what is allowed. The command line prints it as one
line and exits with 2, or 75 for an `UnfinishedError`; a traceback appears only with ``--debug``.
"""

import difflib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class GoalError(ValueError):
    """Base of all errors that a user's input or data can cause."""

    key = ""
    """The setting that it is about, such as `data.root`; empty where it is about none."""


class CombinedError(GoalError):
    """Several at once, so that a user mends them together."""

    def __init__(self, errors: Iterable[GoalError]) -> None:
        self.errors = [*errors]
        super().__init__("\n".join(map(str, self.errors)))


class UnfinishedError(GoalError):
    """The work could not be finished now, through nobody's mistake; the same command continues it."""


class ConfigError(GoalError):
    """Settings are wrong, or do not fit each other."""

    def __init__(self, *problems: str, key: str = "") -> None:
        super().__init__(f"{key} {'; '.join(problems)}".strip())
        self.problems, self.key = problems, key


class DataError(GoalError):
    """A dataset is missing, incomplete or in the wrong layout; as a rule at the place that `data.root` names."""

    def __init__(self, message: str, key: str = "data.root") -> None:
        super().__init__(message)
        self.key = key


class MissingDataError(DataError):
    """A file or folder of a dataset does not exist."""


class ChangedDataError(DataError):
    """A file of a dataset is missing now, or is not the one that was indexed."""


class WeightsError(GoalError):
    """Weights are missing, or do not fit the architecture they are loaded into."""


class DeviceError(GoalError):
    """The requested device is not available."""


class TooLargeError(GoalError):
    """A model or its evaluation does not fit into memory, and smaller batches would not help."""


class DivergedError(GoalError):
    """Training produced a NaN or an infinity."""


class CollapsedError(GoalError):
    """The embeddings have collapsed: negatives stay as near as positives."""


class FencedError(GoalError):
    """A write was refused because another attempt owns the training by now. Callers must stop without writing."""


class UnknownNameError(ConfigError):
    """A name that is not registered."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        options = list(known)
        super().__init__(f"unknown {kind} {name!r}{nearest(name, options)}; known: {', '.join(options)}")


@contextmanager
def about(key: str) -> Iterator[None]:
    """Say of wrong weights which setting names them, unless the error knows it."""
    try:
        yield
    except WeightsError as error:
        error.key = error.key or key
        raise


def first_line(error: BaseException) -> str:
    """The first line of an error's message, of the system's without number and path; its type if there is none."""
    text = str(getattr(error, "strerror", None) or error)
    return (text.strip().splitlines() or [type(error).__name__])[0]


_listeners: list[Callable[[str], object]] = []


def warn(line: str) -> None:
    """Say what went wrong and ends nothing, such as a damaged cache: to the newest listener, or else on stderr."""
    if _listeners:
        _listeners[-1](line)
    else:
        os.write(2, f"{line}\n".encode(errors="replace"))


@contextmanager
def listening(listener: Callable[[str], object]) -> Iterator[None]:
    """Let a function have what :func:`warn` says in this process, in whatever thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def nearest(name: str, options: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for the option closest to ``name``; empty when none is close."""
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def printable(text: str) -> str:
    """A text without the characters that steer a terminal, such as those of a file name or a caption."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
