"""Processes: one unit on several devices, one process each.

`ranks` is what the processes say to one another; `peer` lets the others follow the first, which alone decides and
writes.
"""
