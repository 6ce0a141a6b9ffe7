"""Run sweeps: the command line, launches, their execution with Ray Tune, the store and the tracking.

No package imports this one; `runners.cli` is the entry, and alone of its rooms sees `analysis`.
"""
