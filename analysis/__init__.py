"""Turns a sweep's results table into tables, heatmaps, statistics and reports.

`runners.cli` imports it. It sees the vocabulary of results in `sweeps` and nothing else. Its rooms, from the highest::

    report       the sections, tables and pages that `goal-sweep report` writes
    published    the numbers of the GOAL paper
    figures      heatmaps, curves and diagrams
    statistics   means, differences and weights

Below all rooms lie `results` (reads the table), `blocks` (the contents of a table) and `wording` (how numbers and names
are written).
"""

if __name__ != "goal_sweep.analysis":
    raise ImportError(f"{__name__!r} would be a second copy of this package; import goal_sweep.analysis")
