"""The progress of a sweep: the state of its trainings, by block and by objective. No drawing, no writing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from goal_sweep.runners.store import State, TrainingStatus
from goal_sweep.sweeps.cells import Block, Training
from goal_sweep.sweeps.identity import content_id

Objective = tuple[str, str]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
_NEW = TrainingStatus(state="waiting")


class SweepProgress:
    """The status of every training of one sweep, in its order: as the store has it, then as its launch tells.

    Those of which the store says nothing wait.
    """

    def __init__(
        self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus] | None = None
    ) -> None:
        self._statuses: dict[Training, TrainingStatus] = {}
        self.phase = ""
        """What a sweep that tunes does now, in words; empty for others."""
        self.adopt(trainings, statuses or {})

    def adopt(self, trainings: Sequence[Training], statuses: Mapping[Training, TrainingStatus]) -> None:
        """Take these for all trainings, as a search goes on; of those known already the status stays."""
        known, self.trainings = self._statuses, list(trainings)
        self._statuses = {one: known.get(one, _NEW) for one in trainings}
        self._blocks: dict[Block, dict[Objective, list[Training]]] = {block: {} for block in _in_order(trainings)}
        self._later: dict[Training, list[Training]] = {}
        for training in trainings:
            objective = training.cell.objective.pair, training.cell.objective.triplet
            for block in training.blocks:
                self._blocks[block].setdefault(objective, []).append(training)
            if training.before is not None:
                self._later.setdefault(training.before, []).append(training)
        for training, status in statuses.items():
            if training in self._statuses and training not in known:
                self.set(training, status)

    def __getitem__(self, training: Training) -> TrainingStatus:
        """The status of a training."""
        return self._statuses[training]

    def set(self, training: Training, status: TrainingStatus) -> None:
        """Take a status that was read from the store. The stages after a failed one cannot start and fail too."""
        if status.state == "done":
            best = status.metrics.get("val/rsum", status.best_rsum)
            status = replace(status, epochs=training.stage.epochs, best_rsum=best)
        elif status.state == "failed":
            for later in self._later.get(training, ()):
                reason = f"its {training.stage.name} stage failed"
                self.set(later, replace(self._statuses[later], state="failed", reason=reason))
        elif training.before is not None and self[training].state == self[training.before].state == "failed":
            return
        self._statuses[training] = status

    def running(self, training: Training, epoch: int | None = None, rsum: float = math.nan) -> None:
        """Note that a training runs, if given with so many epochs done, the newest of which had this val/rsum."""
        before = self[training]
        best = before.best_rsum if math.isnan(rsum) or before.best_rsum > rsum else rsum
        epochs = before.epochs if epoch is None else epoch
        self._statuses[training] = replace(before, state="running", epochs=epochs, best_rsum=best)

    def waiting(self, training: Training, reason: str = "") -> None:
        """Note that a training will be tried again, from the epochs that it has done, and why not in this launch."""
        self._statuses[training] = replace(self[training], state="waiting", reason=reason or self[training].reason)

    def begun(self, training: Training) -> bool:
        """Whether a training waits with epochs saved, from which it continues."""
        return self[training].state == "waiting" and self[training].epochs > 0

    def epochs_left(self, training: Training) -> int:
        """Epochs that a training still has to do: none once it is done or has failed."""
        status = self[training]
        return max(0, training.stage.epochs - status.epochs) if status.state in ("waiting", "running") else 0

    def counts(self, trainings: Iterable[Training] | None = None) -> dict[State, int]:
        """Count the trainings in each state."""
        chosen = Counter(self[training].state for training in (self.trainings if trainings is None else trainings))
        return {state: chosen[state] for state in STATES}

    def work(self) -> tuple[int, int]:
        """The epochs that are done, and all. Those of a failed training count as done."""
        total = sum(training.stage.epochs for training in self.trainings)
        return total - sum(map(self.epochs_left, self.trainings)), total

    def blocks(self) -> list[Block]:
        """The blocks, ordered by stage, then by cell. A training of several configurations is in several."""
        return list(self._blocks)

    def seeds(self, block: Block) -> Mapping[Objective, Sequence[Training]]:
        """The seeds of each objective of a block."""
        return self._blocks[block]

    def of_block(self, block: Block) -> list[Training]:
        """The trainings of a block."""
        return [training for seeds in self._blocks[block].values() for training in seeds]

    def digest(self) -> str:
        """16 hex digits that change when the set of trainings changes, or the state or result of any of them."""
        ends = [[one.cell.id, one.key, self[one].state, dict(self[one].metrics)] for one in self.trainings]
        return content_id(sorted(ends, key=str))


def _in_order(trainings: Iterable[Training]) -> list[Block]:
    """The blocks by stage, then by cell, then in the order of the configurations of trainings that have one."""
    blocks_of = [training.blocks for training in trainings]
    number: dict[tuple[str, ...], int] = {}
    for blocks in blocks_of:
        number.setdefault(blocks[0][:-1], len(number))
    single_first = sorted(blocks_of, key=lambda blocks: len(blocks) > 1)
    return sorted(
        dict.fromkeys(block for blocks in single_first for block in blocks), key=lambda block: number[block[:-1]]
    )
