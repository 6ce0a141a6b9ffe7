"""Cells: the trainings of a unit, each with its own weights, optimiser and random stream."""
