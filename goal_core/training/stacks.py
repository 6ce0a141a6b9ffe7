"""The cells of a unit that train as one stack at the moment, where the unit takes that path."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import torch

from goal_core.evaluation import Embedded, EvalSplit
from goal_core.training.cell_stack import CellStack, dissolve
from goal_core.training.cell_trainer import CellTrainer, StepOutcome
from goal_core.training.plan import failure_kind
from goal_core.training.trunk import SharedBatch


class SplitShare(NamedTuple):
    """One cell's part of what a stack embedded."""

    embedded: Embedded
    seconds: float
    """This cell's share of the time."""


class Stacks:
    """Forms the stack anew whenever other cells are at a step: one has failed, or one that resumed later has caught up.

    A single cell trains by itself. So do all when their stack fails before it has changed a weight, such as for lack of
    memory.

    Args:
        wanted: whether the unit's path is `heads`.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = self._embeds = wanted
        self._stack: CellStack | None = None

    def step(self, cells: Sequence[CellTrainer], shared: SharedBatch) -> Mapping[str, tuple[StepOutcome, float]]:
        """Take a step of cells that are at the same one.

        Returns:
            By key the outcome and the cell's share of the seconds; empty where each cell is to take the step itself.
        """
        began = time.perf_counter()
        try:
            stack = self._formed(cells)
            if stack is None:
                return {}
            outcomes: Sequence[StepOutcome] = stack.step(shared.inputs, shared.captions)
        except Exception as error:
            if self._stack is None or not self._stack.has_stepped:
                self._give_up(cells, error)
                return {}
            outcomes = [error] * len(cells)  # a step that has changed some weights cannot be taken again
        seconds = (time.perf_counter() - began + shared.seconds) / len(cells)
        return {cell.key: (outcome, seconds) for cell, outcome in zip(cells, outcomes, strict=True)}

    def embed(self, cells: Sequence[CellTrainer], split: EvalSplit) -> Mapping[str, SplitShare]:
        """Embed a split by cells that are at the same step; by key, empty where each cell is to do it itself."""
        began = time.perf_counter()
        try:
            stack = self._formed(cells) if self._embeds else None
            if stack is None:
                return {}
            embedded = stack.embed(split)
        except Exception as error:
            self._embeds = False
            _log(cells, f"the embeddings of {len(cells)} cells {_what(error)}; each is evaluated by itself")
            return {}
        seconds = (time.perf_counter() - began) / len(cells)
        return {key: SplitShare(one, seconds) for key, one in embedded.items()}

    def _formed(self, cells: Sequence[CellTrainer]) -> CellStack | None:
        if not self._wanted:
            return None
        if self._stack is not None and self._stack.cells != tuple(cells):
            dissolve(self._stack.cells)
            self._stack = None
        if self._stack is None and len(cells) > 1:
            try:
                self._stack = CellStack(cells)
            except Exception:
                dissolve(cells)  # some may be in the stack already
                raise
        return self._stack

    def _give_up(self, cells: Sequence[CellTrainer], error: Exception) -> None:
        _log(cells, f"the stacked heads of {len(cells)} cells {_what(error)}; each cell goes on by itself")
        self._wanted = False
        if self._stack is not None:
            dissolve(self._stack.cells)
        self._stack = None
        if cells[0].encoder.device.type == "cuda":
            torch.cuda.empty_cache()


def _what(error: Exception) -> str:
    return "do not fit into memory" if failure_kind(error) == "memory" else f"failed ({type(error).__name__}: {error})"


def _log(cells: Sequence[CellTrainer], line: str) -> None:
    for cell in cells:
        with suppress(OSError):  # a full disk fails a cell where it saves, not here
            cell.files.log(line)
