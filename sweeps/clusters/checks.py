"""Checks that the settings of several kinds of clusters share. Each lists what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import ConfigDict

from sweeps.checks import looks_secret

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_variables(name: str, variables: Iterable[str]) -> list[str]:
    """Names that no environment variable can have."""
    return [f"{name}: {one!r} is no variable's name" for one in variables if not _VARIABLE.fullmatch(one)]


def check_environment(environment: Mapping[str, str]) -> list[str]:
    """Variables whose values are written to files: their names, secrets among them, and values of several lines."""
    problems = check_variables("environment", environment)
    for name, value in environment.items():
        if looks_secret(name):
            problems.append(
                f"environment must not hold secrets such as {name}, because its values are written to files"
            )
        elif "\n" in value or "\0" in value:
            problems.append(f"environment: the value of {name} must be one line")
    return problems
