"""What several sections of a report are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from goal_sweep.analysis.blocks import BlockResults
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.aggregation import aggregate, first_blocks
from goal_sweep.sweeps.results import DEFAULT, TUNED


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A sweep's results, and their blocks, computed once."""

    results: SweepResults
    others: Mapping[str, SweepResults]
    """The sweeps that this one is compared with, by a unique label."""

    @cached_property
    def blocks(self) -> tuple[BlockResults, ...]:
        """All blocks of the sweep."""
        return aggregate(self.results)

    @cached_property
    def first(self) -> tuple[BlockResults, ...]:
        """The blocks of the main grid at the first value of every axis, which curves and weights describe."""
        return first_blocks(self.results, self.blocks)

    @cached_property
    def answered(self) -> tuple[BlockResults, ...]:
        """The same blocks of both grids, which the answer describes."""
        return first_blocks(self.results, self.blocks, "", DEFAULT, TUNED)

    @cached_property
    def as_printed(self) -> tuple[BlockResults, ...]:
        """The blocks that are compared with the paper: the default grid, whose objectives have the same settings."""
        return first_blocks(self.results, self.blocks, "", DEFAULT)

    @cached_property
    def sweeps(self) -> dict[str, Sequence[BlockResults]]:
        """The first blocks of this sweep and of those it is compared with, by the sweep's label; this one is first."""
        others = {label: first_blocks(other, aggregate(other)) for label, other in self.others.items()}
        return {self.results.header.sweep: self.first, **others}
