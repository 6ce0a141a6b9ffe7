"""One launch of one sweep, in the driver's process: what is left to train, how far it is, and what it will cost.

`runners.cli` imports this room. It imports the store, the execution and the tracking.
"""
