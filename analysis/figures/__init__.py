"""Figures of numbers that were computed elsewhere: this room only draws.

Import names from its modules. The report does, and so does the command line, to draw objectives.
"""
