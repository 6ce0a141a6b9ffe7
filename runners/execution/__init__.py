"""Ray: `session` starts or joins it, `units` has Tune run units, `worker` is what a worker does with one.

In runners, only this room imports ray (and `runners.cluster` its client for jobs).
"""
