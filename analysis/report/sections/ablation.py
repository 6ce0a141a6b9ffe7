"""The section on a sweep's axes: a table and a figure for each setting with several values, the others held fixed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analysis.figures.settings import draw_ablation
from analysis.report.answer import answer_table, answers_of
from analysis.report.inputs import Inputs
from analysis.report.parts import Picture, Section, TextTable
from analysis.results import SweepResults
from analysis.statistics.ablation import Ablation, ablations
from analysis.statistics.gains import BlockPair, gains
from analysis.wording import file_stem, objectives_text, signed
from sweeps.results import MAIN_METRICS, METRICS, Metric

_DRAWN = (METRICS["i2t_r1"], METRICS["t2i_r1"])
_PARAGRAPH = (
    "Each table varies one setting and holds the others at their first value. Numbers are test recalls, mean ± "
    "standard deviation (ddof = 1) over seeds. A value chosen by these numbers is chosen on the test split: choose "
    "by val (val/rsum in runs.csv), and report its test numbers."
)


def ablation_section(inputs: Inputs) -> Section | None:
    """Tables of every axis and figures of those with numbers; None for a sweep without axes or without a result."""
    made = ablations(inputs.results, inputs.blocks)
    if not made:
        return None
    best = answer_table(answers_of(block for block in inputs.blocks if not block.key.grid), "R@1")
    measured = [table for own in made for metric in MAIN_METRICS if (table := _table(own, metric)).rows]
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=(_PARAGRAPH, *(said for own in made for said in _verdicts(inputs.results, own))),
        figures=tuple(_picture(ablation) for ablation in made if ablation.numbers is not None),
        tables=(replace(best, title="The best at each point: R@1"), *measured),
    )


def _verdicts(results: SweepResults, ablation: Ablation) -> Iterator[str]:
    """For each value but the first, how many objectives it raises or lowers by more than noise."""
    first, *others = ablation.blocks
    for block, value in zip(others, ablation.values[1:], strict=True):
        said = []
        for metric in _DRAWN:
            changes = gains(results, BlockPair(default=first, tuned=block), metric, ablation.untouched)
            own = [gain.difference for name, gain in changes.items() if name not in ablation.untouched]
            judged = [change for change in own if change is not None and change.p is not None]
            if judged:
                raised, lowered = (sum(change.verdict == kind for change in judged) for kind in ("better", "worse"))
                sizes = [change.estimate for change in judged]
                reach = f"{signed(min(sizes))} to {signed(max(sizes))}"
                said.append(f"{metric.title} higher for {raised}, lower for {lowered} of {len(judged)} ({reach})")
        if said:
            what = f"{ablation.axis} {value} instead of {ablation.values[0]}, beyond noise"
            yield f"{ablation.title}: {what}: {'; '.join(said)}."


def _stem(ablation: Ablation) -> str:
    return file_stem(replace(ablation.key, point="").slug, ablation.axis)


def _picture(ablation: Ablation) -> Picture:
    title = f"{ablation.title}{f', {ablation.others}' if ablation.others else ''}"
    cells = {metric: ablation.cells(metric) for metric in _DRAWN}
    return Picture(
        stem=f"ablation/{_stem(ablation)}",
        title=f"Ablation: {title}",
        draw=draw_ablation,
        arguments=(title, ablation.axis, ablation.numbers, cells, ablation.untouched),
    )


def _table(ablation: Ablation, metric: Metric) -> TextTable:
    cells = ablation.cells(metric)
    rows = [
        ("/".join(objective), *(cell.text() for cell in along))
        for objective, along in cells.items()
        if objective not in ablation.untouched
    ]
    same = objectives_text(objective for objective in cells if objective in ablation.untouched)
    held = f"Held fixed: {ablation.others}. " if ablation.others else ""
    without = f"{same} {'do' if ',' in same else 'does'} not depend on {ablation.axis}." if same else ""
    return TextTable(
        title=f"{metric.title} by {ablation.title}",
        head=("objective", *(f"{ablation.axis} {value}" for value in ablation.values)),
        rows=tuple(rows),
        note=f"{held}{without}".strip() or "Mean ± standard deviation (ddof = 1) over seeds.",
        label=f"ablation-{_stem(ablation)}-{metric.slug}",
    )
