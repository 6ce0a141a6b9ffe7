"""Errors that a user can act on. This package imports none of the others, so it has its own."""

from __future__ import annotations


class AnalysisError(ValueError):
    """Tracking is not there, or does not hold what a report needs. The message is one line."""


class NoRunsError(AnalysisError):
    """The sweep is tracked, but none of its trainings has begun."""
