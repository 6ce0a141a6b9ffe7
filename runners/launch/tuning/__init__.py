"""The search for each objective's constants: what it proposes next, and what it chose.

A search keeps no state: its candidates follow from the sweep file and from the scores in the store, for every command.
"""

from goal_sweep.runners.launch.tuning.search import Ended, describe, ends_of, foresee, replay
