"""One launch of one sweep, in the driver's process: what is to do, how it stands, and what it will cost.

`runners.cli` imports it; it sees the store, the execution and the tracking.
"""
