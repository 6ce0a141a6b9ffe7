"""The results table of a sweep: a row for each training, which tracking shows and `analysis` reads.

Everything in it follows from the sweep and the store, so it can be written again at any time.
"""

from goal_sweep.runners.results.edits import edits_since
from goal_sweep.runners.results.rows import asked_row, training_row
from goal_sweep.runners.results.table import (
    ResultsTable,
    has_table,
    listed_again,
    lost_results,
    read_results,
    update_results,
)

__all__ = [
    "ResultsTable",
    "asked_row",
    "edits_since",
    "has_table",
    "listed_again",
    "lost_results",
    "read_results",
    "training_row",
    "update_results",
]
