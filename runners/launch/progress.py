"""The progress of a sweep: the state of its trainings and the 5x3 grids that they fill. No drawing, no writing."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from runners.launch.pace import Pace, TimeLeft
from runners.store import State
from sweeps import Block, Training, content_id


@dataclass(slots=True)
class Standing:
    """The state of one training."""

    training: Training
    state: State = "waiting"
    epoch: int = 0
    """Epochs done, those included that it continues."""
    val_rsum: float = float("nan")
    """val/rsum of the last epoch; NaN before the first."""
    best_rsum: float = float("nan")
    """Highest val/rsum of an epoch so far, which selects the weights; NaN before the first."""
    test: Mapping[str, float] = field(default_factory=dict)
    """Final metrics; empty until the training is done."""
    reason: str = ""
    """Why it failed, or what is damaged."""
    damaged: bool = False
    """Whether it has a result whose files are damaged, so that it must be trained again."""
    imported: str = ""
    """The archive that the result came from; empty if it was trained here."""

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""
        return self.training.epochs

    @property
    def left(self) -> int:
        """Epochs still to do: none once it is done or has failed."""
        return self.epochs - self.epoch if self.state in ("waiting", "running") else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """One objective in a block's 5x3 grid, over its seeds."""

    asked: int
    done: int
    failed: int
    running: int
    mean: float
    """Mean of the metric over the finished seeds; NaN if there are none."""
    std: float
    """Standard deviation over the finished seeds (ddof=1); NaN with fewer than two."""
    imported: int = 0
    """How many of the finished seeds were imported."""


class SweepProgress:
    """The state of every training of one sweep. What is asked at every event costs the same however many there are.

    Args:
        trainings: all trainings, in the sweep's order.
    """

    def __init__(self, trainings: Sequence[Training]) -> None:
        self._standings = {training: Standing(training) for training in trainings}
        self._blocks: dict[Block, list[Standing]] = {block: [] for block in _in_order(trainings)}
        self._later: dict[Training, list[Training]] = {}
        """The trainings that start from each training's weights."""
        self._counts = Counter[State]({"waiting": len(self._standings)})
        self._total = 0
        """Epochs in all."""
        self._left = Counter[str]()
        """Epochs that waiting and running trainings still have to do, by stage."""
        self._running = Counter[str]()
        """Trainings that run, by stage."""
        for standing in self._standings.values():
            for block in standing.training.blocks:
                self._blocks[block].append(standing)
            if standing.training.before is not None:
                self._later.setdefault(standing.training.before, []).append(standing.training)
            self._total += standing.epochs
            self._left[standing.training.stage.name] += standing.left
        self.started = time.monotonic()
        self.pace = Pace()
        self.phase = ""
        """What a sweep that tunes does now, in words; empty for others."""

    def __getitem__(self, training: Training) -> Standing:
        """The state of a training."""
        return self._standings[training]

    @property
    def standings(self) -> list[Standing]:
        """The state of every training, in the sweep's order."""
        return list(self._standings.values())

    def _move(self, standing: Standing, state: State, epoch: int | None = None) -> None:
        """Give a training another state and, if given, another number of epochs done."""
        self._counts[standing.state] -= 1
        stage = standing.training.stage.name
        self._left[stage] -= standing.left
        self._running[stage] -= standing.state == "running"
        standing.state, standing.epoch = state, standing.epoch if epoch is None else epoch
        self._counts[state] += 1
        self._left[stage] += standing.left
        self._running[stage] += state == "running"

    def running(self, training: Training, epoch: int, best_rsum: float = float("nan")) -> None:
        """Note that a training runs, with some epochs done already, the best of which had this val/rsum."""
        standing = self[training]
        self._move(standing, "running", epoch)
        standing.best_rsum = _higher(standing.best_rsum, best_rsum)

    def epoch_done(self, training: Training, epoch: int, metrics: Mapping[str, float]) -> None:
        """Note that a training finished an epoch."""
        standing = self[training]
        if epoch > standing.epoch:  # one epoch, also where the training continues an earlier launch's
            self.pace.epoch_done(training.stage.name)
        self._move(standing, "running", epoch)
        standing.val_rsum = metrics.get("val/rsum", float("nan"))
        standing.best_rsum = _higher(standing.best_rsum, standing.val_rsum)

    def done(self, training: Training, result: Mapping[str, Any], imported: str = "") -> None:
        """Note that a training is done, here or in the store that an archive came from."""
        standing = self[training]
        self._move(standing, "done", standing.epochs)
        standing.imported, standing.test = imported, result["metrics"]
        standing.best_rsum = standing.test.get("val/rsum", standing.best_rsum)

    def failed(self, training: Training, reason: str) -> None:
        """Note that a training failed. The stages after it cannot start and fail too."""
        standing = self[training]
        self._move(standing, "failed")
        standing.reason = reason
        for later in self._later.get(training, ()):
            self.failed(later, f"its {training.stage.name} stage failed")

    def damaged(self, training: Training, reason: str) -> None:
        """Note that a file of a finished training is damaged, so that it must be trained again."""
        standing = self[training]
        standing.reason, standing.damaged = reason, True

    def waiting(self, training: Training) -> None:
        """Note that a training will be tried again."""
        self._move(self[training], "waiting")

    def restart(self, training: Training) -> None:
        """Note that a finished training will be repeated from its first epoch."""
        standing, fresh = self[training], Standing(training)
        self._move(standing, "waiting", 0)
        for item in fields(Standing):
            setattr(standing, item.name, getattr(fresh, item.name))

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = self._counts if trainings is None else Counter(self[training].state for training in trainings)
        states: tuple[State, ...] = ("done", "running", "waiting", "failed")
        return {state: chosen[state] for state in states}

    def counts_of(self, block: Block) -> dict[State, int]:
        """Count the trainings of a block in each state."""
        return self.counts(one.training for one in self._blocks[block])

    def share_done(self) -> float:
        """Share of the epochs that are done, 0 to 1. All epochs of a failed training count as done."""
        return 1 - self._left.total() / self._total if self._total else 1.0

    def left(self) -> TimeLeft | None:
        """The time left; None if it is not known yet."""
        return self.pace.left(self._left, +self._running)

    def blocks(self) -> list[Block]:
        """The blocks, ordered by stage, then by cell. A training at several points of the axes is in several."""
        return list(self._blocks)

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.training.cell.id, one.training.key, one.state, dict(one.test)] for one in self.standings]
        return content_id(sorted(ends, key=str))

    def grid(self, block: Block, metric: str) -> dict[tuple[str, str], GridCell]:
        """The grid of a block, by (pair, triplet).

        Args:
            block: the block.
            metric: name of a final metric, such as ``test/i2t_r1``.
        """
        return {objective: _grid_cell(standings, metric) for objective, standings in self.seeds(block).items()}

    def points(self, block: Block, metric: str) -> dict[tuple[str, str], dict[int, float]]:
        """A final metric of each seed that is done, of each objective of a block that has one."""
        points = {
            objective: {
                one.training.cell.seed: one.test[metric]
                for one in standings
                if one.state == "done" and metric in one.test
            }
            for objective, standings in self.seeds(block).items()
        }
        return {objective: of_seed for objective, of_seed in points.items() if of_seed}

    def seeds(self, block: Block) -> dict[tuple[str, str], list[Standing]]:
        """The state of each seed of each objective of a block, by (pair, triplet)."""
        seeds: dict[tuple[str, str], list[Standing]] = {}
        for standing in self._blocks[block]:
            objective = standing.training.cell.objective
            seeds.setdefault((objective.pair, objective.triplet), []).append(standing)
        return seeds


def _in_order(trainings: Iterable[Training]) -> list[Block]:
    """The blocks by stage, then by cell, then in the order of the points, in which trainings of a single one come."""
    found = [training.blocks for training in trainings]
    number: dict[tuple[str, ...], int] = {}
    for of_one in found:
        number.setdefault(of_one[0][:-1], len(number))
    blocks = dict.fromkeys(block for of_one in sorted(found, key=lambda one: len(one) > 1) for block in of_one)
    return sorted(blocks, key=lambda block: number[block[:-1]])


def _higher(one: float, other: float) -> float:
    """The higher of two scores, either of which may be NaN."""
    return one if math.isnan(other) or one > other else other


def _grid_cell(standings: Sequence[Standing], metric: str) -> GridCell:
    values = [one.test[metric] for one in standings if one.state == "done" and metric in one.test]
    states = [standing.state for standing in standings]
    return GridCell(
        asked=len(standings),
        done=len(values),
        failed=states.count("failed"),
        running=states.count("running"),
        mean=statistics.fmean(values) if values else float("nan"),
        std=statistics.stdev(values) if len(values) > 1 else float("nan"),
        imported=sum(bool(standing.imported) for standing in standings),
    )
