"""Run sweeps: the command line, launches, their execution with Ray Tune, the store and the tracking.

No package imports this one; `runners.cli` is the entry, and alone of its rooms sees `analysis`.
"""

if __name__ != "goal_sweep.runners":
    raise ImportError(f"{__name__!r} would be a second copy of this package; import goal_sweep.runners")
