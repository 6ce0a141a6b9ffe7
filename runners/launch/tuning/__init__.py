"""The search for each objective's constants: what it proposes next, what it chose, and its trail.

A search keeps no state of its own. Its candidates follow from the sweep file and from the scores of earlier batches,
which are in the store; so every command, and a launch that was killed, finds the same candidates again.
"""

from runners.launch.tuning.replay import Search, replay, with_search
from runners.launch.tuning.study import Outcome
from runners.launch.tuning.trail import describe, trail_of

__all__ = ["Outcome", "Search", "describe", "replay", "trail_of", "with_search"]
