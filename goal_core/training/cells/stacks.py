"""The cells of a unit that train as stacks at the moment, where the unit takes that path."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from traceback import clear_frames
from typing import NamedTuple

from torch import Tensor

from goal_core.data import Batch
from goal_core.evaluation import Embedded, EvalSplit
from goal_core.objectives import LOSS
from goal_core.training.cells.stack import CellStack, dissolve
from goal_core.training.cells.trainer import CellTrainer, StepOutcome


class SplitShare(NamedTuple):
    """One cell's part of what a stack embedded."""

    embedded: Embedded
    seconds: float
    """This cell's share of the time."""


class Stacks:
    """Forms stacks anew whenever other cells are at a step: one has failed, or one that resumed later has caught up.

    Cells with settings of their own (`TrainingPlan.own`), such as another learning rate, form a stack with those that
    have the same. A cell that has none beside it trains by itself. What fails a stack as a whole, such as a lack of
    memory, fails its cells: to go on one by one would round differently.

    Args:
        wanted: whether the unit's path is `heads`.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._stacks: dict[str, CellStack] = {}
        """By the key of a stack's first cell."""

    def step(
        self, cells: Sequence[CellTrainer], inputs: Tensor, captions: Batch, *, shared_s: float
    ) -> Mapping[str, tuple[StepOutcome, float]]:
        """Take a step of cells that are at the same one.

        Args:
            cells: the cells.
            inputs: of the step; see :meth:`CellStack.step`.
            captions: likewise.
            shared_s: each cell's share of the seconds that loading the batch took.

        Returns:
            By key the outcome and the cell's share of the seconds, without the cells that are to take the step
            themselves.
        """
        taken: dict[str, tuple[StepOutcome, float]] = {}
        for alike in self._alike(cells):
            began = time.perf_counter()
            outcomes: Sequence[StepOutcome]
            try:
                outcomes = self._formed(alike).step(inputs, captions)
            except Exception as error:
                clear_frames(error.__traceback__)  # they hold the activations
                self._stacks.pop(alike[0].key, None)
                outcomes = [error] * len(alike)
            seconds = (time.perf_counter() - began) / len(alike) + shared_s
            taken |= {cell.key: (outcome, seconds) for cell, outcome in zip(alike, outcomes, strict=True)}
        return taken

    def embed(self, cells: Sequence[CellTrainer], split: EvalSplit) -> Mapping[str, SplitShare]:
        """Embed a split by cells that are at the same step; by key, without those that are to do it themselves."""
        shares: dict[str, SplitShare] = {}
        for alike in self._alike(cells):
            began = time.perf_counter()
            try:
                embedded = self._formed(alike).embed(split)
            except Exception as error:  # such as a lack of memory, which a cell by itself may have
                clear_frames(error.__traceback__)
                dissolve(alike)
                self._stacks.pop(alike[0].key, None)
                continue
            seconds = (time.perf_counter() - began) / len(alike)
            shares |= {key: SplitShare(of_cell, seconds) for key, of_cell in embedded.items()}
        return shares

    def _alike(self, cells: Sequence[CellTrainer]) -> list[list[CellTrainer]]:
        """The cells to stack, by settings; dissolves the stacks of other groups than these."""
        if not self._wanted:
            return []
        groups: dict[object, list[CellTrainer]] = {}
        for cell in cells:
            if cell.objective.triplet == LOSS:  # a baseline, whose gradient is its own autograd's
                continue
            groups.setdefault(cell.stage, []).append(cell)
        for key, stack in list(self._stacks.items()):
            if list(stack.cells) not in groups.values():  # one has failed, or is at another step
                dissolve(self._stacks.pop(key).cells)
        return [alike for alike in groups.values() if len(alike) > 1]

    def _formed(self, cells: Sequence[CellTrainer]) -> CellStack:
        first = cells[0].key
        if first not in self._stacks:
            self._stacks[first] = CellStack(cells)
        return self._stacks[first]
