"""The layouts that datasets come in, and the functions that open and check a dataset of any layout.

Importers read the layouts: functions from settings to a `Layout`. `opening` makes an index of what they list, and of
the index a dataset. `goal_core.data` exports the functions for everybody. Only `goal_core.evaluation`, which writes
folders of features, imports this room directly.
"""
