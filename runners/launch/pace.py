"""How long a launch will still take: first from a price, then from the speed that it shows."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from runners.planning.estimate import Packing
from sweeps import ResolvedSweep, pack


class TimeLeft(NamedTuple):
    """What is left of a launch."""

    seconds: float
    priced: bool
    """Whether it rests, in part at least, on the price and not on the speed of this launch."""


@dataclass(slots=True)
class Pace:
    """The speed of one launch. An epoch is that of one cell."""

    prices: Mapping[str, float] = field(default_factory=dict)
    """Device seconds of an epoch, by stage; without a price for each stage that is left, epochs count alike."""
    lanes: int = 1
    """Units that train at the same time."""
    _began: float | None = None
    _done: Counter[str] = field(default_factory=Counter)

    def begin(self, at_once: int = 1) -> None:
        """Note that a worker has begun to train; what Ray takes to start is not training.

        Args:
            at_once: units that train now.
        """
        self.lanes = max(self.lanes, at_once)
        if self._began is None:
            self._began = time.monotonic()

    def epoch_done(self, stage: str) -> None:
        """Note that a cell finished an epoch."""
        self.begin()
        self._done[stage] += 1

    def left(self, epochs: Mapping[str, int], cells: Mapping[str, int]) -> TimeLeft | None:
        """What is left; None without a price and before the first epoch.

        The price gives way to the measured speed until each cell that trains has finished an epoch on average. Measured
        epochs stand for those of other stages by their prices. While the first epochs take longer than their price, the
        time left grows with them.

        Args:
            epochs: how many are left, by stage.
            cells: how many train now, by stage.
        """
        todo = {stage for stage, count in epochs.items() if count}
        if not todo:
            return TimeLeft(0.0, priced=False)
        stages = todo | set(self._done) | set(cells)
        known = stages <= set(self.prices)
        price = {stage: self.prices[stage] if known else 1.0 for stage in stages}
        work = sum(price[stage] * count for stage, count in epochs.items() if count)
        share = min(1.0, self._done.total() / max(1, sum(cells.values())))
        trained = 0.0 if self._began is None else time.monotonic() - self._began
        if not share:
            begun = sum(price[stage] * count for stage, count in cells.items())
            slower = trained * work / begun if begun else 0.0
            return TimeLeft(max(work / self.lanes, slower), priced=True) if known else None
        measured = trained * work / sum(price[stage] * count for stage, count in self._done.items())
        if share == 1.0 or not known:
            return TimeLeft(measured, priced=False)
        return TimeLeft(share * measured + (1 - share) * work / self.lanes, priced=True)


def epoch_prices(sweep: ResolvedSweep, packing: Packing) -> dict[str, float]:
    """Device seconds of an epoch of one cell, by stage. Stages without a price are left out."""
    prices: dict[str, float] = {}
    for trainings in sweep.by_stage:
        seconds = packing.prices.total_s(pack(trainings, sweep.config.execution, packing.limits))
        if seconds is not None:
            prices[trainings[0].stage.name] = seconds / sum(one.num_epochs for one in trainings)
    return prices
