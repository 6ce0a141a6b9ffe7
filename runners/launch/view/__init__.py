"""How far a launch is: the state of its trainings and the time left, and the grids that show both on a terminal.

`progress` has the states and the time, `grids` draws a block, and `live` the sweep.
"""
