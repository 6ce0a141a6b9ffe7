"""Batch jobs on clusters: what is sent to Slurm, Ray's Jobs API or Kubernetes, and what they say of it.

What is sent is written by pure functions, so that it can be shown and tested without a cluster.
Commands of the cluster go through one function that callers may replace. `runners.cli` imports this room.
"""
