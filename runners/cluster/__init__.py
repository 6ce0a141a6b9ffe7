"""Batch jobs on clusters: what is sent to Slurm and to Ray's Jobs API, what they say of it, and a RayJob for `kubectl`.

What is sent is written by pure functions, so that it can be shown and tested without a cluster. `runners.cli` imports
this room.
"""
