"""The section on a sweep's axes: a table and a figure for each setting with several values, the others held fixed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from goal_sweep.analysis.blocks import Block, BlockKey, Objective
from goal_sweep.analysis.report.answer import answer_table, answers_of
from goal_sweep.analysis.report.changes import JUDGED_NOTE, change_picture, change_table, changes_text
from goal_sweep.analysis.report.inputs import Inputs
from goal_sweep.analysis.report.parts import Picture, Section, TextTable
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.gains import BlockPair, Gain, gains
from goal_sweep.analysis.wording import file_stem, objectives_text, point_values
from goal_sweep.sweeps.axes import ANY, value_text
from goal_sweep.sweeps.results import MAIN_METRICS, METRICS, Metric

_DRAWN = (METRICS["i2t_r1"], METRICS["t2i_r1"])
_PARAGRAPH = (
    "Each table varies one setting and holds the others at their first value. A value chosen by these numbers is "
    "chosen on the test split: choose by val (val/rsum in runs.csv), and report its test numbers."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """The values of one axis in one model and stage."""

    axis: str
    """The setting, as labels have it."""
    values: tuple[str, ...]
    blocks: tuple[Block, ...]
    """One for each value, in their order."""
    others: str
    """The values of the other axes, such as ``lr 0.0002``; empty without others."""
    untouched: frozenset[Objective]
    """The objectives that do not depend on the axis: each has the same trainings at every value."""

    @property
    def key(self) -> BlockKey:
        """The block of the first value."""
        return self.blocks[0].key

    @property
    def pairs(self) -> list[BlockPair]:
        """The first value and each other one."""
        first, *others = self.blocks
        return [BlockPair(default=first, tuned=other) for other in others]

    @property
    def title(self) -> str:
        """The axis, and the model and stage, for a reader."""
        variant = "paper" if self.axis == "variant" else self.key.variant
        return f"{self.axis}, {replace(self.key, point='', variant=variant).title}"


def ablation_section(inputs: Inputs) -> Section | None:
    """Tables and figures of every axis; None for a sweep without axes or without a result."""
    made = ablations(inputs.results, inputs.blocks)
    if not made:
        return None
    best = answer_table(answers_of(block for block in inputs.blocks if not block.key.grid), "R@1")
    said, tables = [_PARAGRAPH, JUDGED_NOTE], [replace(best, title="The highest mean at each point: R@1")]
    pictures = []
    for own in made:
        changes = {metric: _changes(inputs.results, own, metric) for metric in MAIN_METRICS}
        said += _verdicts(own, changes)
        pictures.append(_picture(own, changes))
        tables += [table for metric in MAIN_METRICS if (table := _table(own, metric, changes[metric])).rows]
    return Section(
        anchor="ablation",
        title="Ablations: one setting at a time",
        paragraphs=tuple(said),
        figures=tuple(pictures),
        tables=tuple(tables),
    )


def ablations(results: SweepResults, blocks: Iterable[Block]) -> tuple[Ablation, ...]:
    """The ablations of a sweep: for each model, stage and axis that touches it one; those without a number are omitted.

    Args:
        results: the sweep's results.
        blocks: all its blocks.
    """
    header, by_key = results.header, {block.key: block for block in blocks}
    made = []
    for key in by_key:
        if not header.axes or key.point != header.points[key.stage][0]:
            continue
        for name, axis in header.axes_of(key.stage).items():
            values = tuple(map(value_text, axis.values))
            along = tuple(by_key[_at(key, name, value)] for value in values)
            others = {other: value for other, value in point_values(key.point).items() if other != name}
            if not all(block.is_empty for block in along):
                made.append(
                    Ablation(
                        axis=name,
                        values=values,
                        blocks=along,
                        others=" ".join(f"{other} {value}" for other, value in others.items()),
                        untouched=_untouched(results, name, key.stage),
                    )
                )
    return tuple(made)


def _at(key: BlockKey, name: str, value: str) -> BlockKey:
    """The key of the block with another value of one axis."""
    values = point_values(key.point) | {name: value}
    point = " ".join(f"{axis} {at}" for axis, at in values.items())
    return replace(key, point=point, variant=values.get("variant", key.variant))


def _untouched(results: SweepResults, axis: str, stage: str) -> frozenset[Objective]:
    """The objectives that train the same at every value of the axis, as the places of their trainings say."""
    runs = results.runs[results.runs["stage"] == stage]
    places = zip(runs["pair"], runs["triplet"], runs["point"], strict=True)
    return frozenset((pair, triplet) for pair, triplet, place in places if point_values(place).get(axis) == ANY)


def _changes(results: SweepResults, ablation: Ablation, metric: Metric) -> list[dict[Objective, Gain]]:
    """What each value but the first changes."""
    return [gains(results, pair, metric, ablation.untouched) for pair in ablation.pairs]


def _verdicts(ablation: Ablation, changes: Mapping[Metric, Sequence[Mapping[Objective, Gain]]]) -> Iterator[str]:
    """For each value but the first, how many objectives it raises or lowers by more than noise."""
    for number, value in enumerate(ablation.values[1:]):
        said = {m.title: changes_text(changes[m][number].values()) for m in _DRAWN}
        if known := [f"{title}, {text}" for title, text in said.items() if text]:
            yield f"{ablation.title}: {ablation.axis} {value} instead of {ablation.values[0]}: {'; '.join(known)}."


def _stem(ablation: Ablation) -> str:
    return file_stem(replace(ablation.key, point="").slug, ablation.axis)


def _picture(own: Ablation, changes: Mapping[Metric, Sequence[Mapping[Objective, Gain]]]) -> Picture:
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
