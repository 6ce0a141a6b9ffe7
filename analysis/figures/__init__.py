"""Figures of results that were computed elsewhere: this room only draws.

Imports `analysis.statistics` and `analysis.tracking` for the values it draws. The report imports it, and so does the
command line, to draw objectives.
"""

from __future__ import annotations

from analysis.figures.ablation import draw_ablation
from analysis.figures.colours import WHITE, ColourScale, Scale, assign_colours, scale_of, text_colour
from analysis.figures.comparison import draw_rank_diagram, draw_side_by_side
from analysis.figures.files import FigureWriter, write_figure
from analysis.figures.fonts import undrawable
from analysis.figures.forest import Forest, draw_forest, verdict
from analysis.figures.heatmap import draw_heatmap
from analysis.figures.objectives import draw_gradient_fields, draw_pair_weights, draw_triplet_weights
from analysis.figures.training import draw_curves, draw_triplets
from analysis.figures.tuning import draw_budget, draw_sensitivity, draw_tuned

__all__ = [
    "WHITE",
    "ColourScale",
    "FigureWriter",
    "Forest",
    "Scale",
    "assign_colours",
    "draw_ablation",
    "draw_budget",
    "draw_curves",
    "draw_forest",
    "draw_gradient_fields",
    "draw_heatmap",
    "draw_pair_weights",
    "draw_rank_diagram",
    "draw_sensitivity",
    "draw_side_by_side",
    "draw_triplet_weights",
    "draw_triplets",
    "draw_tuned",
    "scale_of",
    "text_colour",
    "undrawable",
    "verdict",
    "write_figure",
]
