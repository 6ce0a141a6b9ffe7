"""Cells: the trainings of a unit, each with its own weights, optimiser and random stream.

`trainer` takes one cell's steps, `state` holds and restores what they change, and `optim` steps its weights. `stack`
takes the steps of several cells at once, and `stacks` chooses which.
"""
