"""Numbers about results: means by block, which objectives and weights differ, the values of an axis.

Reads no file and draws nothing. Import names from its modules; every room above may.
"""
