"""The errors of ``analysis`` that a user can act on; this package imports none of the others, so it has its own."""

from __future__ import annotations


class AnalysisError(ValueError):
    """Tracking that is not there, or does not hold what a report needs; the message is one line."""
