"""The error that a user of this package can act on."""

from __future__ import annotations


class AnalysisError(ValueError):
    """What a report needs is missing or damaged. The message is one line."""
