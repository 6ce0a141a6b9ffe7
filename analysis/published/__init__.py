"""The numbers of the GOAL paper, as printed, and the comparison of a sweep with them.

Imports `analysis.statistics`; the report may import it.
"""

from __future__ import annotations

from analysis.published.numbers import (
    NUM_RUNS,
    GridComparison,
    compare_blocks,
    published_blocks,
    published_key,
    published_table,
)
from analysis.published.orders import Estimate, PointOrder, order_agreement
from analysis.published.verdicts import VERDICTS

__all__ = [
    "NUM_RUNS",
    "VERDICTS",
    "Estimate",
    "GridComparison",
    "PointOrder",
    "compare_blocks",
    "order_agreement",
    "published_blocks",
    "published_key",
    "published_table",
]
