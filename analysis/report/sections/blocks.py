"""The sections on single blocks: tables and heatmaps, what is missing, settings, each weight by itself, and curves."""

from statistics import median
from typing import Final

import pandas as pd

from goal_sweep.analysis.blocks import BlockResults, Objective
from goal_sweep.analysis.figures.blocks import draw_curves
from goal_sweep.analysis.report.parts import GridTable, Picture, Section, TextTable
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.analysis.statistics.comparison import crossed
from goal_sweep.analysis.wording import list_text, numbers_text, objectives_text, p_equation, seeds_text
from goal_sweep.goal_core.evaluation.metrics import MAIN_METRICS, MEASURES, RSUM
from goal_sweep.sweeps.results import BASELINE


def block_section(block: BlockResults, colour: str, *, folded: bool) -> Section:
    """A block's tables and heatmaps in its full ``colour``, or a warning if nothing is finished."""
    num_gaps, nothing = len(block.gaps), block.is_empty
    warning = f"Nothing of this block is finished: {num_gaps} runs are missing. {block.protocol}"
    return Section(
        anchor=block.key.slug,
        title=block.key.title,
        num_missing=num_gaps,
        warnings=(warning,) * nothing,
        grids=tuple(GridTable(block=block, measure=measure, colour=colour) for measure in MEASURES if not nothing),
        folded=folded and not nothing,
    )


def missing_section(inputs: Inputs) -> Section | None:
    """All missing results: a row for the objectives that lack the same seeds for the same reason; None without any."""
    gaps = [(b.key.title, name, gap.seed, gap.status, gap.reason) for b in inputs.blocks for name, gap in b.gaps]
    if not gaps:
        return None
    head = ["block", "objectives", "seeds", "status", "reason"]
    of_objectives = pd.DataFrame(gaps, columns=head).groupby([head[0], head[1], *head[3:]], sort=False)["seeds"]
    numbers = of_objectives.agg(numbers_text).reset_index()
    rows = numbers.groupby([head[0], "seeds", *head[3:]], sort=False)["objectives"]
    asked = {b.key.title: sum(cell.requested for cell in b.cells.values()) for b in inputs.blocks}
    listed = [
        (title, f"all {len(names)}" if len(names) == asked[title] > 1 else ", ".join(names), *rest)
        for (title, *rest), names in ((list(map(str, place)), own) for place, own in rows)
    ]
    table = TextTable(title="By block and reason", head=tuple(head), rows=tuple(listed), words=len(head))
    return Section(anchor="missing", title="Missing results", tables=(table,))


def settings_section(inputs: Inputs) -> Section | None:
    """The settings of the trainings, each with all values that occur."""
    results, runs = inputs.results, inputs.results.counted
    if runs.empty:
        return None
    values = {str(name): sorted(set(own) - {""}) for name, own in results.settings(runs).items() if name != "seed"}
    rows = tuple((name, ", ".join(own)) for name, own in sorted(values.items()) if own)
    data = ", ".join(sorted(set(runs["data_fingerprint"])))
    paragraph = f"{seeds_text(results.header.seeds).capitalize()}. Data fingerprint {data}."
    table = TextTable(title="All trainings", head=("setting", "values"), rows=rows, words=2)
    return Section(anchor="settings", title="Settings", paragraphs=(paragraph,), tables=(table,) if rows else ())


_WEIGHTS_NOTE = (
    "Rows of weights: the mean over the other weight within each seed, then mean ± standard deviation (ddof = 1) over "
    "the n seeds with every cell of that row or column. Effects: the largest difference between two pair weights, two "
    "triplet weights or, for the interaction, the deviations of two cells from the sum of their row's and column's "
    "effects; p is that of the most significant one, corrected for all, by the same rule as for objectives."
)
_EFFECTS = {"pair": "pair weight", "triplet": "triplet weight", "interaction": "interaction"}


def weights_section(inputs: Inputs) -> Section | None:
    """A table for each block; None when no block has two pair and two triplet weights."""
    tables, left_out = [], []
    for block in inputs.first:
        if block.grids[RSUM.key].weights.levels:
            tables.append(_weights_table(block))
            known = block.grids[RSUM.key].means
            if rest := [name for name in known if name not in crossed(known)]:
                why = "left out, because they are not combined with every other weight"
                left_out.append(f"{block.key.title}: {why}: {objectives_text(rest)}.")
    if not tables:
        return None
    title = "Each weight on its own, and statistical significance"
    return Section(anchor="weights", title=title, paragraphs=(_WEIGHTS_NOTE, *left_out), tables=tuple(tables))


def _weights_table(block: BlockResults) -> TextTable:
    """A row for each weight, then one for each effect."""
    found = [block.grids[metric.key].weights for metric in MAIN_METRICS]
    rows = [
        (f"{factor[0].upper()} {level}", *(own.levels[factor, level].text() for own in found), str(cell.n))
        for (factor, level), cell in found[0].levels.items()
    ]
    for effect, name in _EFFECTS.items():
        compared = [own.comparisons[effect] for own in found]
        texts = [f"{own.estimates.max(initial=0):.1f} points, {p_equation(own.smallest_p)}" for own in compared]
        numbers = [f"{median(own.counts):.0f}" for own in compared if own.is_tested] or ["--"]
        rows.append((name, *texts, numbers[0]))
    head = ("weight", *(metric.title for metric in MAIN_METRICS), "n")
    return TextTable(title=block.key.title, head=head, rows=tuple(rows))


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
    "respect to the embeddings, before clipping. Warm-up epochs, left of a dotted line, do not follow it."
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
        stem, title = f"curves/{block.key.slug}", f"Learning curves: {block.key.title}"
        warmups = set(runs.get(f"setting/stages.{block.key.stage}.warmup_epochs", ()))
        warmup = int(warmups.pop()) if len(warmups) == 1 else None  # unless all trainings agree
        arguments = (block.key.title, lines, _roles(block), warmup)
        pictures.append(Picture(stem=stem, title=title, draw=draw_curves, arguments=arguments))
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
