"""The section on each weight on its own: its mean, and whether it matters."""

from __future__ import annotations

from goal_sweep.analysis.blocks import BlockResults
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Section, TextTable
from goal_sweep.analysis.statistics.weights import crossed
from goal_sweep.analysis.wording import p_equation
from goal_sweep.goal_core.evaluation.metrics import MAIN_METRICS, RSUM

_NOTE = (
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
            tables.append(_table(block))
            known = block.grids[RSUM.key].means
            if rest := ["/".join(name) for name in known if name not in crossed(known)]:
                left_out.append(
                    f"{block.key.title}: left out, because they are not combined with every other weight: "
                    f"{', '.join(rest)}."
                )
    if not tables:
        return None
    title = "Each weight on its own, and statistical significance"
    return Section(anchor="weights", title=title, paragraphs=(_NOTE, *left_out), tables=tuple(tables))


def _table(block: BlockResults) -> TextTable:
    """A row for each weight, then one for each effect."""
    found = [block.grids[metric.key].weights for metric in MAIN_METRICS]
    rows = [
        (f"{factor[0].upper()} {level}", *(own.levels[factor, level].text() for own in found), str(cell.n))
        for (factor, level), cell in found[0].levels.items()
    ]
    for effect, name in _EFFECTS.items():
        compared = [own.comparisons[effect] for own in found]
        texts = [f"{own.estimates.max(initial=0):.1f} points, {p_equation(own.smallest_p)}" for own in compared]
        rows.append((name, *texts, f"{compared[0].runs:.0f}" if compared[0].is_judged else "--"))
    head = ("weight", *(metric.title for metric in MAIN_METRICS), "n")
    return TextTable(title=block.key.title, head=head, rows=tuple(rows))
