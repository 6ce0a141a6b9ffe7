"""The sections on learning curves and costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd

from goal_sweep.analysis.blocks import Block, Objective
from goal_sweep.analysis.figures.training import draw_curves
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section, TextTable
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import values_in
from goal_sweep.analysis.wording import list_text
from goal_sweep.sweeps.results import BASELINE, RSUM

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
_COSTS_NOTE = (
    "Means over seeds. A cell of a shared unit is charged its own steps and its share of the work that the unit did "
    "for all its cells. Times from different or busy machines cannot be compared."
)


def learning_sections(inputs: Inputs) -> list[Section]:
    """Learning curves and costs. A section that cannot be shown says why; none before any result."""
    blocks = [block for block in inputs.first if not block.is_empty]
    return [_curves_section(inputs.results, blocks), _costs_section(inputs.results, blocks)] if blocks else []


def _curves_section(results: SweepResults, blocks: Sequence[Block]) -> Section:
    pictures, without, short = [], [], []
    epochs = results.epochs(results.counted, [*CURVES])
    recorded = set(epochs.dropna(subset=list(CURVES), how="all")["training"])
    for block in blocks:
        runs = results.of_block(results.counted, block.key)
        lines = {name: own for metric, name in CURVES.items() if (own := curves(runs, epochs, metric))}
        without += [str(name) for key, name in zip(runs["training"], runs["name"], strict=True) if key not in recorded]
        if lines and all(len(curve) < 2 for own in lines.values() for curve in own.values()):
            short.append(block.key.title)
        elif lines:
            pictures.append(
                Picture(
                    stem=f"curves/{block.slug}",
                    title=f"Learning curves: {block.key.title}",
                    draw=draw_curves,
                    arguments=(block.key.title, lines, _roles(block), _warmup(block, runs)),
                )
            )
    said = [_CURVES_NOTE if pictures else "Nothing can be shown here."]
    said += [f"No curves, because there is one epoch: {list_text(short)}."] * bool(short)
    said += [f"Without a recorded epoch: {list_text(without)}."] * bool(without)
    return Section(anchor="curves", title="Learning curves", paragraphs=tuple(said), figures=tuple(pictures))


def curves(runs: pd.DataFrame, epochs: pd.DataFrame, metric: str) -> dict[Objective, pd.DataFrame]:
    """The curves of one block by objective; objectives without the metric are omitted.

    Args:
        runs: the block's trainings.
        epochs: from `SweepResults.epochs`; may contain other trainings and metrics too.
        metric: the metric of the curves.

    Returns:
        A row for each epoch with ``epoch``, ``mean``, ``min`` and ``max`` over the seeds: with few seeds, a range needs
        no assumption about the distribution.
    """
    points = epochs[["training", "epoch", metric]].dropna().merge(runs[["training", "pair", "triplet"]], on="training")
    of_epochs = points.groupby(["pair", "triplet", "epoch"])[metric].agg(["mean", "min", "max"]).reset_index("epoch")
    return {(str(pair), str(triplet)): own for (pair, triplet), own in of_epochs.groupby(level=["pair", "triplet"])}


def _roles(block: Block) -> dict[Objective, str]:
    """The objectives whose curves stand out."""
    means = block.grids[RSUM.key].means
    best, worst = (choose(means, key=lambda key: means[key]) for choose in (max, min))
    roles = {"best": best, "baseline": BASELINE, "worst": worst}
    shown = [key for key in dict.fromkeys(roles.values()) if key in means]
    return {key: ", ".join(role for role, own in roles.items() if own == key) for key in shown}


def _costs_section(results: SweepResults, blocks: Sequence[Block]) -> Section:
    tables = tuple(table for block in blocks if (table := _cost_table(results, block)).rows)
    commits = sorted({str(commit)[:12] or "unknown" for commit in results.counted["git_commit"]})
    ran = f"The sweep's {len(results.counted)} finished trainings ran the code of commit {', '.join(commits)}."
    said = (_COSTS_NOTE, ran) if tables else ("No training recorded the time of a step.",)
    return Section(anchor="costs", title="Time and cost", paragraphs=said, tables=tables)


def _cost_table(results: SweepResults, block: Block) -> TextTable:
    runs = results.of_block(results.counted, block.key).dropna(subset=["step_ms"])
    columns = ["step_ms", "val_s", "seconds"]
    means = {name: list(map(float, own[columns].mean())) for name, own in runs.groupby(["pair", "triplet"])}
    base = means.get(BASELINE, [float("nan")])[0]
    rows = []
    for name in (name for name in block.cells if name in means):
        step, *seconds = means[name]
        numbers = (f"{step:.1f}", f"{step / base:.2f}", *(f"{own:.1f}" for own in seconds))
        rows.append(("/".join(name), *(text.replace("nan", "--") for text in numbers)))
    head = ("objective", "ms per step", "x con/con", "validation s", "all steps s")
    return TextTable(title=block.key.title, head=head, rows=tuple(rows))


def _warmup(block: Block, runs: pd.DataFrame) -> int | None:
    """The warm-up epochs of a block's stage; None unless all its trainings agree."""
    numbers = values_in(runs, f"setting/stages.{block.key.stage}.warmup_epochs")
    return int(numbers.pop()) if len(numbers) == 1 else None
