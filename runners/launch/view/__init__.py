"""How far a launch is: the state of its trainings, the time left, and the grids that show both on a terminal.

`standing` is a training's state, `progress` that of the sweep, and `pace` the time left; `grids` draws a block, and
`live` the sweep.
"""
