"""Errors that a user can act on. This package imports none of the others, so it has its own."""

from __future__ import annotations


class AnalysisError(ValueError):
    """Tracking is missing, or lacks what a report needs. The message is one line."""


class NoRunsError(AnalysisError):
    """The sweep is tracked, but none of its trainings has begun."""


def first_line(error: Exception) -> str:
    """The first line of an error's message that is not blank, or the error's type if there is none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)
