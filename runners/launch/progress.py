"""How a sweep stands: one entry for each cell and stage, and the 5x3 grids they fill. Draws nothing, writes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sweeps import Cell
from sweeps.identity import content_id

State = Literal["waiting", "running", "done", "failed"]


@dataclass(slots=True, kw_only=True)
class Entry:
    """One cell in one stage."""

    cell: Cell
    stage: int
    state: State = "waiting"
    epoch: int = 0
    val_rsum: float = float("nan")
    test: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def epochs(self) -> int:
        """Epochs of the stage."""
        return self.cell.stages[self.stage].config.epochs

    @property
    def name(self) -> str:
        """The entry's name, as its MLflow run has it."""
        return self.cell.name(self.stage_name)

    @property
    def stage_name(self) -> str:
        """The stage's name."""
        return self.cell.stages[self.stage].config.name

    @property
    def key(self) -> str:
        """The stage's key in the store."""
        return self.cell.stages[self.stage].key


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """One square of a 5x3 grid: an objective in a block, over its seeds."""

    asked: int
    done: int
    failed: int
    running: int
    mean: float
    """Mean of the metric over the finished seeds; NaN when none is."""
    std: float
    """Standard deviation over them (ddof=1); NaN with fewer than two."""


BlockKey = tuple[str, str, str, str]
"""Dataset, framework, backbone, stage."""


class SweepProgress:
    """The state of every cell and stage of one sweep.

    Args:
        cells: all cells, in order.
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = list(cells)
        self.entries: dict[tuple[str, str], Entry] = {}
        for cell in cells:
            for stage in range(len(cell.stages)):
                entry = Entry(cell=cell, stage=stage)
                self.entries[cell.id, entry.stage_name] = entry
        self.started = time.monotonic()
        self._epochs_here = 0

    def __getitem__(self, key: tuple[str, str]) -> Entry:
        """The entry of a cell id and stage name."""
        return self.entries[key]

    def of_stage(self, stage: int) -> list[Entry]:
        """The entries of one stage, in the cells' order."""
        return [entry for entry in self.entries.values() if entry.stage == stage]

    def running(self, cell_id: str, stage: str, epoch: int) -> None:
        """A cell is in training, with some epochs done already."""
        entry = self.entries[cell_id, stage]
        entry.state, entry.epoch = "running", epoch

    def epoch_done(self, cell_id: str, stage: str, epoch: int, metrics: Mapping[str, float]) -> None:
        """A cell finished an epoch."""
        entry = self.entries[cell_id, stage]
        self._epochs_here += max(0, epoch - entry.epoch)
        entry.state, entry.epoch, entry.val_rsum = "running", epoch, metrics.get("val/rsum", float("nan"))

    def done(self, cell_id: str, stage: str, result: Mapping[str, Any]) -> None:
        """A cell finished the stage."""
        entry = self.entries[cell_id, stage]
        entry.state, entry.epoch, entry.test = "done", entry.epochs, result["metrics"]

    def failed(self, cell_id: str, stage: str, reason: str) -> None:
        """A cell failed; the stages after it cannot start."""
        entry = self.entries[cell_id, stage]
        entry.state, entry.reason = "failed", reason
        for later in self.entries.values():
            if later.cell.id == cell_id and later.stage > entry.stage:
                later.state, later.reason = "failed", f"its {stage} stage failed"

    def waiting(self, cell_id: str, stage: str) -> None:
        """A cell will be tried again."""
        self.entries[cell_id, stage].state = "waiting"

    def counts(self, entries: Iterable[Entry] | None = None) -> dict[State, int]:
        """How many entries are in each state."""
        chosen = list(self.entries.values() if entries is None else entries)
        states: tuple[State, ...] = ("done", "running", "waiting", "failed")
        return {state: sum(entry.state == state for entry in chosen) for state in states}

    def progress(self) -> float:
        """Share of the epochs that are done, 0 to 1; the stages of failed cells count as over."""
        total = sum(entry.epochs for entry in self.entries.values())
        gone = sum(entry.epochs if entry.state == "failed" else entry.epoch for entry in self.entries.values())
        return gone / total if total else 1.0

    def eta_seconds(self) -> float | None:
        """Seconds left at the pace of this launch, by epochs; None before the first epoch.

        An epoch of one stage may cost more than one of another; the estimate mends itself as they come.
        """
        left = sum(e.epochs - e.epoch for e in self.entries.values() if e.state in ("waiting", "running"))
        if not left:
            return 0.0
        if not self._epochs_here:
            return None
        return (time.monotonic() - self.started) / self._epochs_here * left

    def blocks(self) -> list[BlockKey]:
        """The blocks, in the order of the cells and stages."""
        keys = dict.fromkeys(_block(entry) for stage in range(self.num_stages) for entry in self.of_stage(stage))
        return list(keys)

    @property
    def num_stages(self) -> int:
        """Stages of the sweep."""
        return max((len(cell.stages) for cell in self.cells), default=0)

    def digest(self) -> str:
        """16 hex digits that change with what is asked for and with how any of it ended."""
        return content_id(sorted([entry.cell.id, entry.key, entry.state] for entry in self.entries.values()))

    def grid(self, block: BlockKey, metric: str) -> dict[tuple[str, str], Square]:
        """The squares of a block by (pair, triplet).

        Args:
            block: which block.
            metric: name of a final metric, such as ``test/i2t_r1``.
        """
        squares: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.entries.values():
            if _block(entry) == block:
                squares.setdefault((entry.cell.objective.pair, entry.cell.objective.triplet), []).append(entry)
        return {objective: _square(entries, metric) for objective, entries in squares.items()}


def _block(entry: Entry) -> BlockKey:
    cell = entry.cell
    return cell.data.name, cell.model.framework, cell.model.backbone.name, entry.stage_name


def _square(entries: Sequence[Entry], metric: str) -> Square:
    values = [entry.test[metric] for entry in entries if entry.state == "done"]
    return Square(
        asked=len(entries),
        done=len(values),
        failed=sum(entry.state == "failed" for entry in entries),
        running=sum(entry.state == "running" for entry in entries),
        mean=statistics.fmean(values) if values else float("nan"),
        std=statistics.stdev(values) if len(values) > 1 else float("nan"),
    )
