"""Everything that the sections of a report are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from goal_sweep.analysis.blocks import Block, Objective
from goal_sweep.analysis.results import SweepResults
from goal_sweep.analysis.statistics.ablations import Ablation, ablations
from goal_sweep.analysis.statistics.aggregation import aggregate, first_blocks
from goal_sweep.analysis.statistics.effects import crossed_runs, marginals
from goal_sweep.analysis.statistics.gains import BlockPair, Gain, block_pairs, gains
from goal_sweep.sweeps.results import DEFAULT, TUNED, Metric


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """A sweep's results, and what several sections compute from them, once."""

    results: SweepResults
    others: Mapping[str, SweepResults]
    """The sweeps that this one is compared with, by a unique label."""

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks of the sweep."""
        return aggregate(self.results)

    @cached_property
    def first(self) -> tuple[Block, ...]:
        """The blocks of the main grid at the first value of every axis. The statistics describe these."""
        return first_blocks(self.results, self.blocks)

    @cached_property
    def answered(self) -> tuple[Block, ...]:
        """The same blocks of both grids. The answer describes these."""
        return first_blocks(self.results, self.blocks, "", DEFAULT, TUNED)

    @cached_property
    def as_printed(self) -> tuple[Block, ...]:
        """The blocks that are compared with the paper: the default grid, whose objectives have the same settings."""
        return first_blocks(self.results, self.blocks, "", DEFAULT)

    @cached_property
    def sweeps(self) -> dict[str, Sequence[Block]]:
        """The first blocks of this sweep and of those it is compared with, by the sweep's label; this one is first."""
        others = {label: first_blocks(other, aggregate(other)) for label, other in self.others.items()}
        return {self.results.header.sweep: self.first, **others}

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The trainings that count, of the first value of every axis and of the main grid."""
        return self.results.at_first_point(self.results.counted)

    @cached_property
    def marginals(self) -> pd.DataFrame:
        """The means of each pair weight and each triplet weight."""
        return marginals(crossed_runs(self.runs))

    @cached_property
    def pairs(self) -> tuple[BlockPair, ...]:
        """The two grids of each block of a tuned sweep."""
        return block_pairs(self.answered)

    @cached_property
    def gained(self) -> dict[BlockPair, dict[Metric, dict[Objective, Gain]]]:
        """What tuning changed, by metric and objective."""
        return {
            pair: {grid.metric: gains(self.results, pair, grid.metric) for grid in pair.default.grids.values()}
            for pair in self.pairs
        }

    @cached_property
    def ablated(self) -> dict[Ablation, dict[Metric, list[dict[Objective, Gain]]]]:
        """What each value of an axis but the first changes, by metric."""
        return {
            own: {
                grid.metric: [gains(self.results, pair, grid.metric, own.untouched) for pair in own.pairs]
                for grid in own.blocks[0].grids.values()
            }
            for own in ablations(self.results, self.blocks)
        }
