"""The section on learning curves."""

from __future__ import annotations

from typing import Final

import pandas as pd

from goal_sweep.analysis.blocks import BlockResults, Objective
from goal_sweep.analysis.figures.training import draw_curves
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section
from goal_sweep.analysis.statistics.aggregation import values_in
from goal_sweep.analysis.wording import list_text
from goal_sweep.goal_core.evaluation.metrics import RSUM
from goal_sweep.sweeps.results import BASELINE

CURVES: Final[dict[str, str]] = {
    "val/rsum": "val rsum",
    "train/pos_sim": "s_p (positive pairs)",
    "train/neg_sim": "s_n (hardest negatives)",
    "train/active": "active triplets",
    "train/grad_norm": "gradient norm",
}
"""The metrics of the learning curves and their labels; each is a panel of the figure."""
_CURVES_NOTE = (
    "The objectives with the highest and the lowest test rsum, and con/con, stand out, with a band over their seeds; "
    "grey lines are the other objectives. Lines are means over seeds. The similarities s_p of positive pairs and s_n "
    "of hardest negatives, the share of active triplets and the gradient norm are means over an epoch's training "
    "batches. A triplet is active while its negative is within the margin. The gradient is that of the objective with "
    "respect to the embeddings, before clipping. Epochs to the left of a dotted line are warm-up with another gradient."
)


def curves_section(inputs: Inputs) -> Section | None:
    """A figure for each block whose stage has two epochs; None before any result."""
    results, pictures, short = inputs.results, [], []
    epochs = results.epochs(results.counted, [*CURVES])
    for block in (block for block in inputs.first if not block.is_empty):
        runs = results.of_block(results.counted, block.key)
        lines = {name: own for metric, name in CURVES.items() if (own := curves(runs, epochs, metric))}
        if all(len(curve) < 2 for own in lines.values() for curve in own.values()):
            short.append(block.key.title)
            continue
        pictures.append(
            Picture(
                stem=f"curves/{block.key.slug}",
                title=f"Learning curves: {block.key.title}",
                draw=draw_curves,
                arguments=(block.key.title, lines, _roles(block), _warmup(block, runs)),
            )
        )
    said = [_CURVES_NOTE] * bool(pictures)
    said += [f"No curves, because there are no two epochs: {list_text(short)}."] * bool(short)
    section = Section(anchor="curves", title="Learning curves", paragraphs=tuple(said), figures=tuple(pictures))
    return section if said else None


def curves(runs: pd.DataFrame, epochs: pd.DataFrame, metric: str) -> dict[Objective, pd.DataFrame]:
    """The curves of some runs by objective; objectives without the metric are omitted.

    Returns:
        A row for each epoch with ``epoch``, ``mean``, ``min`` and ``max`` over the seeds: with few seeds, a range needs
        no assumption about the distribution.
    """
    points = epochs[["training", "epoch", metric]].dropna().merge(runs[["training", "pair", "triplet"]], on="training")
    of_epochs = points.groupby(["pair", "triplet", "epoch"])[metric].agg(["mean", "min", "max"]).reset_index("epoch")
    return {(str(pair), str(triplet)): own for (pair, triplet), own in of_epochs.groupby(level=["pair", "triplet"])}


def _roles(block: BlockResults) -> dict[Objective, str]:
    """The objectives whose curves stand out."""
    means = block.grids[RSUM.key].means
    best, worst = (choose(means, key=lambda key: means[key]) for choose in (max, min))
    roles = {"best": best, "baseline": BASELINE, "worst": worst}
    shown = [key for key in dict.fromkeys(roles.values()) if key in means]
    return {key: ", ".join(role for role, own in roles.items() if own == key) for key in shown}


def _warmup(block: BlockResults, runs: pd.DataFrame) -> int | None:
    """The warm-up epochs of a block's stage; None unless all its trainings agree."""
    numbers = values_in(runs, f"setting/stages.{block.key.stage}.warmup_epochs")
    return int(numbers.pop()) if len(numbers) == 1 else None
