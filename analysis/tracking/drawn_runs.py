"""The runs whose courses are drawn: all of them, unless a cell has more seeds than a figure can use."""

from __future__ import annotations

import pandas as pd

from analysis.statistics.aggregate import counted
from analysis.tracking.fetch import SweepRuns

MAX_SEEDS = 10
"""Seeds of a cell whose epochs are read. More would cost minutes in a store of ten thousand runs and change no line."""


def drawn_runs(sweep: SweepRuns) -> pd.DataFrame:
    """The counted runs with the lowest `MAX_SEEDS` seeds of each cell, as in ``sweep.runs``."""
    runs = counted(sweep).sort_values("seed", kind="stable")
    place = ["dataset", "framework", "backbone", "stage", "variant", "data_fingerprint", "pair", "triplet"]
    return runs[runs.groupby(place).cumcount() < MAX_SEEDS]


def seeds_note(sweep: SweepRuns) -> str:
    """Which seeds the courses are of, in a sentence; empty when they are all there are."""
    if len(sweep.seeds) <= MAX_SEEDS:
        return ""
    return f"Courses are of the first {MAX_SEEDS} of each objective's {len(sweep.seeds)} seeds."
