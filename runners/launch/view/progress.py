"""The progress of a sweep: the state of its trainings, by block and by objective. No drawing, no writing."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runners.launch.view.pace import Pace, TimeLeft
from runners.launch.view.standing import STATES, Objective, Standing
from runners.store import State, TrainingStatus
from sweeps import Block, Training, content_id


class SweepProgress:
    """The state of every training of one sweep.

    Args:
        trainings: all trainings, in the sweep's order.
        statuses: what the store says of them; those that are missing wait.
    """

    def __init__(
        self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus] | None = None
    ) -> None:
        self._standings = {training: Standing(training) for training in trainings}
        self._blocks: dict[Block, dict[Objective, list[Training]]] = {block: {} for block in _in_order(trainings)}
        self._later: dict[Training, list[Training]] = {}
        """The trainings that start from each training's weights."""
        for training in trainings:
            objective = training.cell.objective.pair, training.cell.objective.triplet
            for block in training.blocks:
                self._blocks[block].setdefault(objective, []).append(training)
            if training.before is not None:
                self._later.setdefault(training.before, []).append(training)
        self.started = time.monotonic()
        self.pace = Pace()
        self.phase = ""
        """What a sweep that tunes does now, in words; empty for others."""
        for training, status in (statuses or {}).items():
            self._read(training, status)

    def _read(self, training: Training, status: TrainingStatus) -> None:
        standing = self[training]
        if status.state == "done":
            self.done(training, status.result, status.imported)
        elif status.state == "failed":
            self.failed(training, status.reason)
        elif standing.state != "failed":  # with the stage before it
            standing.state, standing.epoch = status.state, min(status.epochs, training.epochs)
            standing.best_rsum = status.best_rsum
            if status.damaged:
                standing.reason, standing.damaged = status.reason, True

    def __getitem__(self, training: Training) -> Standing:
        """The state of a training."""
        return self._standings[training]

    @property
    def standings(self) -> list[Standing]:
        """The state of every training, in the sweep's order."""
        return list(self._standings.values())

    def running(self, training: Training, epoch: int | None = None, best_rsum: float = math.nan) -> None:
        """Note that a training runs, if given with so many epochs done, the best of which had this val/rsum."""
        standing = self[training]
        standing.state, standing.epoch = "running", standing.epoch if epoch is None else epoch
        standing.best_rsum = _higher(standing.best_rsum, best_rsum)

    def epoch_done(self, training: Training, epoch: int, metrics: Mapping[str, float]) -> None:
        """Note that a training finished an epoch."""
        val_rsum = metrics.get("val/rsum", math.nan)
        self.running(training, epoch, val_rsum)
        self.pace.epoch_done(training, epoch)
        self[training].val_rsum = val_rsum

    def done(self, training: Training, result: Mapping[str, Any], imported: str = "") -> None:
        """Note that a training is done, here or in the store that an archive came from."""
        standing = self[training]
        standing.state, standing.epoch = "done", standing.epochs
        standing.imported, standing.test = imported, result["metrics"]
        standing.best_rsum = standing.test.get("val/rsum", standing.best_rsum)

    def failed(self, training: Training, reason: str) -> None:
        """Note that a training failed. The stages after it cannot start and fail too."""
        self[training].state, self[training].reason = "failed", reason
        for later in self._later.get(training, ()):
            self.failed(later, f"its {training.stage.name} stage failed")

    def waiting(self, training: Training) -> None:
        """Note that a training will be tried again, from the epochs that it has done."""
        self[training].state = "waiting"

    def restart(self, training: Training) -> None:
        """Note that a finished training will be repeated from its first epoch."""
        self._standings[training] = Standing(training)

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = Counter(self[training].state for training in (self._standings if trainings is None else trainings))
        return {state: chosen[state] for state in STATES}

    def share_done(self) -> float:
        """Share of the epochs that are done, 0 to 1. All epochs of a failed training count as done."""
        total = sum(training.epochs for training in self._standings)
        return 1 - sum(standing.left for standing in self.standings) / total if total else 1.0

    def left(self) -> TimeLeft | None:
        """The time left; None if it is not known yet."""
        return self.pace.left(self._standings)

    def blocks(self) -> list[Block]:
        """The blocks, ordered by stage, then by cell. A training at several points of the axes is in several."""
        return list(self._blocks)

    def seeds(self, block: Block) -> Mapping[Objective, Sequence[Standing]]:
        """The state of each seed of each objective of a block."""
        return {name: [self[training] for training in own] for name, own in self._blocks[block].items()}

    def of_block(self, block: Block) -> list[Standing]:
        """The state of every training of a block."""
        return [standing for seeds in self.seeds(block).values() for standing in seeds]

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.training.cell.id, one.training.key, one.state, dict(one.test)] for one in self.standings]
        return content_id(sorted(ends, key=str))


def _in_order(trainings: Iterable[Training]) -> list[Block]:
    """The blocks by stage, then by cell, then in the order of the points, in which trainings of a single one come."""
    blocks_of = [training.blocks for training in trainings]
    number: dict[tuple[str, ...], int] = {}
    for blocks in blocks_of:
        number.setdefault(blocks[0][:-1], len(number))
    single_first = sorted(blocks_of, key=lambda blocks: len(blocks) > 1)
    return sorted(
        dict.fromkeys(block for blocks in single_first for block in blocks), key=lambda block: number[block[:-1]]
    )


def _higher(score: float, other: float) -> float:
    """The higher of two scores, either of which may be NaN."""
    return score if math.isnan(other) or score > other else other
