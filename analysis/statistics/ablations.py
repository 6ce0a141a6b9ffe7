"""The axes of a sweep one by one: the blocks of an axis's values, with the other axes at their first value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from goal_sweep.analysis.blocks import BlockKey, BlockResults, Objective
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.wording import configuration_values
from goal_sweep.sweeps.axes import ANY, value_text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ablation:
    """The values of one axis in one model and stage."""

    axis: str
    """The setting, as labels have it."""
    values: tuple[str, ...]
    blocks: tuple[BlockResults, ...]
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
    def title(self) -> str:
        """The axis, and the model and stage, for a reader."""
        variant = "paper" if self.axis == "variant" else self.key.variant
        return f"{self.axis}, {replace(self.key, configuration='', variant=variant).title}"


def ablations(results: SweepResults, blocks: Iterable[BlockResults]) -> tuple[Ablation, ...]:
    """For each model, stage and axis that touches it one; those without a number are omitted."""
    header, by_key = results.header, {block.key: block for block in blocks}
    made = []
    for key in by_key:
        if not header.axes or key.configuration != header.configurations[key.stage][0]:
            continue
        for name, axis in header.axes_of(key.stage).items():
            values = tuple(map(value_text, axis.values))
            along = tuple(by_key[_at(key, name, value)] for value in values)
            others = {other: value for other, value in configuration_values(key.configuration).items() if other != name}
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
    values = configuration_values(key.configuration) | {name: value}
    configuration = " ".join(f"{axis} {at}" for axis, at in values.items())
    return replace(key, configuration=configuration, variant=values.get("variant", key.variant))


def _untouched(results: SweepResults, axis: str, stage: str) -> frozenset[Objective]:
    """The objectives that train the same at every value of the axis, as the places of their trainings say."""
    runs = results.runs[results.runs["stage"] == stage]
    places = zip(runs["pair"], runs["triplet"], runs["configuration"], strict=True)
    return frozenset((pair, triplet) for pair, triplet, place in places if configuration_values(place).get(axis) == ANY)
