"""The results table of a sweep: a row for each training, which tracking shows and `analysis` reads.

Everything in it follows from the sweep and the store, so it can be written again at any time.
"""

from goal_sweep.runners.results.edits import edits_since as edits_since
from goal_sweep.runners.results.rows import asked_row as asked_row
from goal_sweep.runners.results.rows import training_row as training_row
from goal_sweep.runners.results.table import ResultsTable as ResultsTable
from goal_sweep.runners.results.table import has_table as has_table
from goal_sweep.runners.results.table import listed_again as listed_again
from goal_sweep.runners.results.table import lost_results as lost_results
from goal_sweep.runners.results.table import read_results as read_results
from goal_sweep.runners.results.table import update_results as update_results
