"""What several sections of a report are computed from."""

from __future__ import annotations

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
