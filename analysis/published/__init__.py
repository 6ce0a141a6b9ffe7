"""The numbers of the GOAL paper, as printed, and the comparison of a sweep with them.

Import names from its modules. The report may import it.
"""
