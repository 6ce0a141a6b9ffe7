"""One launch of one sweep, in the driver's process: `launch` trains what a sweep lacks, part by part.

`opened_sweep` joins a sweep with its data and store. The room `remaining` decides what is left and which units can
start, `launcher` has the execution run them and notes what becomes of them, `view` shows it, and `tuning` carries out
a search. `runners.cli` imports this package, which imports the store, the execution, planning and the tracking.
"""
