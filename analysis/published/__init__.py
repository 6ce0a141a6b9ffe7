"""The numbers of the GOAL paper, as printed, and the comparison of a sweep with them.

Imports `analysis.statistics`; the report may import it.
"""

from __future__ import annotations

from analysis.published.numbers import (
    GridComparison,
    compare_blocks,
    published_blocks,
    published_key,
    published_table,
)

__all__ = [
    "GridComparison",
    "compare_blocks",
    "published_blocks",
    "published_key",
    "published_table",
]
