"""Numbers about results: means by block, differences, effects, ranks, what tuning changed.

Reads no file and draws nothing. Import names from its modules; every room above may.
"""
