"""Numbers about the results: means by block, differences, effects, ranks and learning curves.

Does not read files or draw. Imports `analysis.tracking` for the runs; every room above may import it.
"""

from __future__ import annotations

from analysis.blocks import Difference
from analysis.statistics.aggregation import (
    TEST_SELECTION_WARNING,
    aggregate,
    cells_frame,
    counted,
    of_block,
    runs_frame,
    stages_selected_on_test,
)
from analysis.statistics.comparison import Comparison, compare
from analysis.statistics.differences import (
    MAX_EXACT,
    MIN_FREE,
    bootstrap_intervals,
    paired_differences,
    summary_within_noise,
)
from analysis.statistics.effects import (
    EFFECTS,
    MARGINAL_COLUMNS,
    Effect,
    factor_effects,
    marginals,
    subjects_of,
    whole_subjects,
)
from analysis.statistics.epoch_curves import COSTS, CURVES, Curve, costs, curves, drawn_runs, runs_without, seeds_note
from analysis.statistics.ranks import MIN_BLOCKS, RankComparison, rank_blocks, rank_objectives

__all__ = [
    "COSTS",
    "CURVES",
    "EFFECTS",
    "MARGINAL_COLUMNS",
    "MAX_EXACT",
    "MIN_BLOCKS",
    "MIN_FREE",
    "TEST_SELECTION_WARNING",
    "Comparison",
    "Curve",
    "Difference",
    "Effect",
    "RankComparison",
    "aggregate",
    "bootstrap_intervals",
    "cells_frame",
    "compare",
    "costs",
    "counted",
    "curves",
    "drawn_runs",
    "factor_effects",
    "marginals",
    "of_block",
    "paired_differences",
    "rank_blocks",
    "rank_objectives",
    "runs_frame",
    "runs_without",
    "seeds_note",
    "stages_selected_on_test",
    "subjects_of",
    "summary_within_noise",
    "whole_subjects",
]
