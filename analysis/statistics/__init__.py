"""Numbers about the results: means by block, differences, effects, ranks and learning curves.

Does not read files or draw. Imports `analysis.tracking` for the runs; every room above may import it.
"""

from __future__ import annotations

from analysis.blocks import Difference
from analysis.statistics.ablation import Ablation, ablation_frame, ablations
from analysis.statistics.aggregation import (
    TEST_SELECTION_WARNING,
    aggregate,
    at_first_point,
    cells_frame,
    counted,
    first_blocks,
    missing_counts,
    of_block,
    runs_frame,
    stages_selected_on_test,
)
from analysis.statistics.comparison import Comparison, compare, compare_printed
from analysis.statistics.differences import (
    MAX_EXACT,
    can_be_significant,
    paired_differences,
)
from analysis.statistics.effects import (
    EFFECTS,
    MARGINAL_COLUMNS,
    Effect,
    crossed_runs,
    factor_effects,
    marginals,
    subjects_of,
    whole_subjects,
)
from analysis.statistics.epoch_curves import COSTS, CURVES, Curve, costs, curves, drawn_runs, runs_without, seeds_note
from analysis.statistics.grids import of_grid
from analysis.statistics.progress import Progress, tuning_progress
from analysis.statistics.ranks import MIN_BLOCKS, RankComparison, rank_blocks, rank_objectives
from analysis.statistics.survival import Survival, survivals
from analysis.statistics.trails import (
    BudgetCurve,
    Sensitivity,
    budget_curve,
    candidates_frame,
    expected_best,
    group_of,
    order_of,
    sensitivity,
)
from analysis.statistics.tuned import BlockPair, Gain, block_pairs, gains, gains_frame

__all__ = [
    "COSTS",
    "CURVES",
    "EFFECTS",
    "MARGINAL_COLUMNS",
    "MAX_EXACT",
    "MIN_BLOCKS",
    "TEST_SELECTION_WARNING",
    "Ablation",
    "BlockPair",
    "BudgetCurve",
    "Comparison",
    "Curve",
    "Difference",
    "Effect",
    "Gain",
    "Progress",
    "RankComparison",
    "Sensitivity",
    "Survival",
    "ablation_frame",
    "ablations",
    "aggregate",
    "at_first_point",
    "block_pairs",
    "budget_curve",
    "can_be_significant",
    "candidates_frame",
    "cells_frame",
    "compare",
    "compare_printed",
    "costs",
    "counted",
    "crossed_runs",
    "curves",
    "drawn_runs",
    "expected_best",
    "factor_effects",
    "first_blocks",
    "gains",
    "gains_frame",
    "group_of",
    "marginals",
    "missing_counts",
    "of_block",
    "of_grid",
    "order_of",
    "paired_differences",
    "rank_blocks",
    "rank_objectives",
    "runs_frame",
    "runs_without",
    "seeds_note",
    "sensitivity",
    "stages_selected_on_test",
    "subjects_of",
    "survivals",
    "tuning_progress",
    "whole_subjects",
]
