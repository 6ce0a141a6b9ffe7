"""Checks that the settings of several kinds of clusters share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import ConfigDict

from sweeps.checks import check_tracking, failures, looks_secret

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_environment(environment: Mapping[str, str], passed: Iterable[str] = ()) -> list[str]:
    """List what is wrong with variables: their names, secrets among them, and values of several lines."""
    problems = []
    for name, value in environment.items():
        if not VARIABLE.fullmatch(name):
            problems.append(f"environment: {name!r} is no variable's name")
        elif looks_secret(name):
            problems.append(
                f"environment must not hold secrets such as {name}, because its values are written to files"
            )
        elif "\n" in value or "\0" in value:
            problems.append(f"environment: the value of {name} must be one line")
    return problems + [
        f"pass_environment: {name!r} is no variable's name" for name in passed if not VARIABLE.fullmatch(name)
    ]


def check_credentials(tracking: str) -> list[str]:
    """List what is wrong with a tracking URI; an empty one is fine."""
    return failures(lambda: check_tracking(tracking)) if tracking else []


def below(settings: object, least: int, *names: str) -> list[str]:
    """Names of the settings that are below the least value they may have."""
    return [name for name in names if getattr(settings, name) < least]


def one_line(settings: object, *names: str) -> list[str]:
    """Refuse texts of several lines, which would add lines of their own to a script."""
    found = []
    for name in names:
        value = getattr(settings, name)
        texts = [value] if isinstance(value, str) else value
        found += [f"{name} must be one line each, got {text!r}" for text in texts if "\n" in text or "\r" in text]
    return found
