"""Two objectives of a block, query by query: how often each ranks a right answer first, and for which words.

All numbers are of the ranks in the results table, from which the report's recalls and intervals are computed, too.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from goal_sweep.analysis.blocks import BlockResults, Objective
from goal_sweep.analysis.results import objective_named
from goal_sweep.analysis.statistics.aggregation import Inputs
from goal_sweep.analysis.statistics.comparison import saved_ranks
from goal_sweep.analysis.wording import seeds_text
from goal_sweep.goal_core.objectives.variants import objective_name
from goal_sweep.sweeps.results import ResultsError

_FEWEST, _MOST = 5, 8
"""Queries of a word that is listed, and words of a list."""


class WordCount(NamedTuple):
    """A word of the queries, for an objective."""

    word: str
    better: int
    """Queries with it for which the objective is right with more seeds than the other one."""
    worse: int
    """With fewer seeds."""
    expected: float
    """What ``better`` would be, of both, if they were shared as they are over all queries."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two objectives of a block, and the trainings of the seeds that are finished for both."""

    block: BlockResults
    names: tuple[Objective, Objective]
    runs: tuple[pd.DataFrame, pd.DataFrame]
    """A row for each seed that is finished for both; the seeds are the index."""

    @property
    def seeds(self) -> list[int]:
        """The seeds that are finished for both."""
        return [int(seed) for seed in self.runs[0].index]

    @property
    def seeds_text(self) -> str:
        """These seeds, and which others are not finished for both."""
        left = sorted({gap.seed for name, gap in self.block.gaps if name in self.titles})
        return seeds_text(self.seeds) + (f" ({seeds_text(left)} not finished for both)" if left else "")

    @property
    def titles(self) -> tuple[str, str]:
        """Both objectives for a reader."""
        return objective_name(*self.names[0]), objective_name(*self.names[1])

    @cached_property
    def hits(self) -> dict[str, NDArray[np.bool_]]:
        """By direction, whether an objective with a seed ranks a right answer first: (2, seeds, queries)."""
        ranks = [[saved_ranks(one) for one in runs["ranks"]] for runs in self.runs]
        i2t, t2i = (np.stack([[one[at] == 0 for one in own] for own in ranks]) for at in (0, 1))
        return {"i2t": i2t, "t2i": t2i}

    def means(self, way: str) -> list[str]:
        """Both means of R@1, as the report's table prints them."""
        return [self.block.grids[f"{way}_r1"].cells[name].text() for name in self.names]

    def difference(self, way: str) -> str:
        """The first minus the second R@1, with the report's interval."""
        change = self.block.grids[f"{way}_r1"].comparison.differences[self.names]
        return f"{change.text}, {change.verdict}" if change.verdict == "not significant" else change.text

    def counts(self, way: str) -> dict[str, int]:
        """How many queries both, either or neither have a right answer for, over all seeds, by what is counted."""
        (one, other), (first, second) = self.hits[way], self.titles
        parts = {"both right": one & other, f"only {first}": one & ~other, f"only {second}": other & ~one}
        return {name: int(part.sum()) for name, part in {**parts, "neither": ~(one | other)}.items()}

    def words(self, way: str, words: Sequence[Collection[str]]) -> list[list[WordCount]]:
        """For each objective the words of the queries that favour it most: ``better`` exceeds what is expected.

        A query counts once, whatever the number of seeds. Words of fewer than 5 queries that are better are left out,
        and those that are within two standard errors (of a binomial share) of what is expected.

        Args:
            words: of each query, each once; empty without any.
        """
        one, other = self.hits[way].sum(axis=1)
        leads = [np.flatnonzero(lead).tolist() for lead in (one > other, other > one)]
        counts = [Counter(chain.from_iterable(words[query] for query in lead if words)) for lead in leads]
        found: list[list[WordCount]] = []
        for own, behind, lead in zip(counts, counts[::-1], leads, strict=True):
            share = len(lead) / max(sum(map(len, leads)), 1)
            every = (WordCount(word, n, behind[word], (n + behind[word]) * share) for word, n in own.items())
            error = 2 * (1 - share) ** 0.5
            listed = [one for one in every if one.better > max(_FEWEST - 1, one.expected + error * one.expected**0.5)]
            found.append(sorted(listed, key=lambda count: (count.expected - count.better, count.word))[:_MOST])
        return found

    def drawn(self, way: str, among: NDArray[np.bool_], most: int, side: int) -> list[int]:
        """At most so many of some queries: where the first objective (1) or the second (-1) leads with the most seeds.

        Among equal ones, and with a `side` of 0, they are drawn at random, always the same.
        """
        order = np.random.default_rng(0).permutation(np.flatnonzero(among))
        one, other = self.hits[way].sum(axis=1, dtype=int)[:, order]
        return [int(query) for query in order[np.argsort(side * (other - one), kind="stable")][:most]]


def pair_of(inputs: Inputs, first: str, second: str, *, stage: str = "", backbone: str = "") -> Pair:
    """Two objectives of a sweep by their names, such as ``con/nca``, at the first value of every axis.

    Raises `ResultsError` where they are not two of the sweep's, or no seed is finished for both.

    Args:
        stage: the last one if empty.
        backbone: needed where the sweep has several.
    """
    results, header = inputs.results, inputs.results.header
    names = objective_named(header, first), objective_named(header, second)
    if names[0] == names[1]:
        raise ResultsError(f"{first} is given twice; give two objectives")
    block = _block(inputs, stage or header.stages[-1], backbone)
    done = results.of_block(results.counted, block.key)
    one, other = (done[(done["pair"] == name[0]) & (done["triplet"] == name[1])].set_index("seed") for name in names)
    seeds = sorted({*one.index} & {*other.index})
    if not seeds:
        both = f"both {first} and {second} of {block.key.title}"
        raise ResultsError(f"no seed is finished for {both}; launch it to its end")
    runs = one.loc[seeds], other.loc[seeds]
    if not all(isinstance(ranks, bytes) for own in runs for ranks in own["ranks"]):
        raise ResultsError(f"the store lacks ranks of {first} or {second}, so that their queries cannot be compared")
    return Pair(block=block, names=names, runs=runs)


def _block(inputs: Inputs, stage: str, backbone: str) -> BlockResults:
    header = inputs.results.header
    blocks = {block.key.backbone: block for block in inputs.first if block.key.stage == stage}
    if not blocks:
        raise ResultsError(f"{header.sweep} has no table of stage {stage!r}; its stages: {', '.join(header.stages)}")
    chosen = backbone or (next(iter(blocks)) if len(blocks) == 1 else "")
    if chosen not in blocks:
        raise ResultsError(f"give --backbone, one of {', '.join(blocks)}{backbone and f'; got {backbone!r}'}")
    return blocks[chosen]
