"""One launch of one sweep, in the driver's process.

`opened` joins a sweep with its data and store, `remaining` decides what is left and can start, `loop` has it trained
and notes what becomes of it, `view` shows it, and `tuning` carries out a search.
"""
