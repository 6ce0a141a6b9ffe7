"""The section on a sweep's axes: a table and a figure for each setting with several values, the others held fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from goal_sweep.analysis.blocks import Objective
from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.changes import JUDGED_NOTE, change_picture, change_table
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section, TextTable
from goal_sweep.analysis.statistics.ablations import Ablation
from goal_sweep.analysis.statistics.gains import Gain
from goal_sweep.analysis.wording import file_stem, objectives_text
from goal_sweep.sweeps.results import MAIN_METRICS, METRICS, Metric

_DRAWN = (METRICS["i2t_r1"], METRICS["t2i_r1"])
_PARAGRAPH = (
    "Each table varies one setting and holds the others at their first value. A value chosen by these numbers is "
    "chosen on the test split: choose by val (val/rsum in runs.csv), and report its test numbers."
)
_Changes = Mapping[Metric, Sequence[Mapping[Objective, Gain]]]


def ablation_section(inputs: Inputs) -> Section | None:
    """Tables and figures of every axis; None for a sweep without axes or without a result."""
    if not inputs.ablated:
        return None
    best = answer_table(answers_of(block for block in inputs.blocks if not block.key.grid), "R@1")
    changed = [(own, metric, changes[metric]) for own, changes in inputs.ablated.items() for metric in MAIN_METRICS]
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=(_PARAGRAPH, JUDGED_NOTE),
        figures=tuple(_picture(own, changes) for own, changes in inputs.ablated.items()),
        tables=(
            replace(best, title="The highest mean at each point: R@1"),
            *(table for own in changed if (table := _table(*own)).rows),
        ),
    )


def _stem(ablation: Ablation) -> str:
    return file_stem(replace(ablation.key, point="").slug, ablation.axis)


def _picture(own: Ablation, changes: _Changes) -> Picture:
    title = f"{own.title}{f', {own.others}' if own.others else ''}"
    panels = [
        (f"{own.axis} {value}", metric, pair, changes[metric][at])
        for at, (value, pair) in enumerate(zip(own.values[1:], own.pairs, strict=True))
        for metric in _DRAWN
    ]
    what = f"difference from {own.axis} {own.values[0]}"
    return change_picture(f"ablation/{_stem(own)}", f"Ablation: {title}", what, panels)


def _table(ablation: Ablation, metric: Metric, changes: Sequence[Mapping[Objective, Gain]]) -> TextTable:
    same = objectives_text(name for name in ablation.blocks[0].cells if name in ablation.untouched)
    held = f"Held fixed: {ablation.others}. " if ablation.others else ""
    without = f"{same} {'do' if ',' in same else 'does'} not depend on {ablation.axis}." if same else ""
    return change_table(
        f"{metric.title} by {ablation.title}",
        [(f"{ablation.axis} {value}", block) for value, block in zip(ablation.values, ablation.blocks, strict=True)],
        metric,
        changes,
        without=ablation.untouched,
        note=f"{held}{without}".strip(),
        label=f"ablation-{_stem(ablation)}-{metric.slug}",
    )
