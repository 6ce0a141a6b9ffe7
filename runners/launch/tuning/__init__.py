"""The search for each objective's constants: what it proposes next, and what it chose.

A search keeps no state of its own. Its candidates follow from the sweep file and from the scores of earlier batches,
which are in the store; so every command, and a launch that was killed, finds the same candidates again.
"""

from goal_sweep.runners.launch.tuning.search import Ended, describe, ends_of, foresee, replay
