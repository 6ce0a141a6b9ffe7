"""What a plugin needs to register a tracker, which follows the trainings of a launch."""

from goal_sweep.sweeps.trackers import Tracker, trackers

__all__ = ["Tracker", "trackers"]
