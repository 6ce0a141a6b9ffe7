"""The cells of a unit that train as stacks at the moment, where the unit takes that path."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from traceback import clear_frames
from typing import NamedTuple

import torch
from torch import Tensor

from goal_core.data import Batch
from goal_core.evaluation import Embedded, EvalSplit
from goal_core.training.cells.stack import CellStack, dissolve
from goal_core.training.cells.trainer import CellTrainer, StepOutcome
from goal_core.training.plan import failure_kind


class SplitShare(NamedTuple):
    """One cell's part of what a stack embedded."""

    embedded: Embedded
    seconds: float
    """This cell's share of the time."""


class Stacks:
    """Forms stacks anew whenever other cells are at a step: one has failed, or one that resumed later has caught up.

    Cells with settings of their own (`TrainingPlan.own`), such as another learning rate, form a stack with those that
    have the same, and so do cells whose random streams differ. A cell that has none beside it trains by itself. So do
    all when a stack fails before it has changed a weight, such as for lack of memory.

    Args:
        wanted: whether the unit's path is `heads`.
        shares_gpu: whether other units have a part of the GPU. Then the cells of a stack that lacks memory fail.
    """

    def __init__(self, *, wanted: bool, shares_gpu: bool = False) -> None:
        self._shares_gpu = shares_gpu
        self._wanted = self._embeds = wanted
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
            began, stack, trouble = time.perf_counter(), None, ""
            try:
                stack = self._formed(alike)
                if stack is None:
                    continue
                outcomes: Sequence[StepOutcome] = stack.step(inputs, captions)
            except Exception as error:
                clear_frames(error.__traceback__)  # they hold the activations
                retried = self._shares_gpu and failure_kind(error) == "memory"
                if not retried and (stack is None or not stack.has_stepped):
                    trouble = _what(error)
                outcomes = [error] * len(alike)  # a step that has changed some weights cannot be taken again
            if trouble:
                del outcomes, stack  # with the error, before the cells' tensors are copied
                self._give_up(cells, trouble)
                return taken
            seconds = (time.perf_counter() - began) / len(alike) + shared_s
            taken |= {cell.key: (outcome, seconds) for cell, outcome in zip(alike, outcomes, strict=True)}
        return taken

    def embed(self, cells: Sequence[CellTrainer], split: EvalSplit) -> Mapping[str, SplitShare]:
        """Embed a split by cells that are at the same step; by key, without those that are to do it themselves."""
        shares: dict[str, SplitShare] = {}
        for alike in self._alike(cells):
            began = time.perf_counter()
            try:
                stack = self._formed(alike) if self._embeds else None
                if stack is None:
                    continue
                embedded = stack.embed(split)
            except Exception as error:
                clear_frames(error.__traceback__)
                self._embeds = False
                _log(cells, f"the embeddings of {len(alike)} cells {_what(error)}; each is evaluated by itself")
                return shares
            seconds = (time.perf_counter() - began) / len(alike)
            shares |= {key: SplitShare(of_cell, seconds) for key, of_cell in embedded.items()}
        return shares

    def _alike(self, cells: Sequence[CellTrainer]) -> list[list[CellTrainer]]:
        """The cells by settings and random stream, in their order; dissolves the stacks of other groups than these."""
        groups: dict[object, list[CellTrainer]] = {}
        for cell in cells:
            groups.setdefault((cell.stage, cell.stream.key()), []).append(cell)
        for key, stack in list(self._stacks.items()):
            if list(stack.cells) not in groups.values():  # one has failed, or is at another step
                dissolve(self._stacks.pop(key).cells)
        return list(groups.values())

    def _formed(self, cells: Sequence[CellTrainer]) -> CellStack | None:
        """The stack of cells that are alike; None where each is to go by itself."""
        if not self._wanted:
            return None
        stack = self._stacks.get(cells[0].key)
        if stack is None and len(cells) > 1:
            try:
                stack = self._stacks[cells[0].key] = CellStack(cells)
            except Exception:
                dissolve(cells)  # some may be in the stack already
                raise
        return stack

    def _give_up(self, cells: Sequence[CellTrainer], trouble: str) -> None:
        _log(cells, f"the stacked heads of {len(cells)} cells {trouble}; each cell goes on by itself")
        self._wanted = False
        for stack in self._stacks.values():
            dissolve(stack.cells)
        self._stacks = {}
        if cells[0].encoder.device.type == "cuda":
            torch.cuda.empty_cache()


def _what(error: Exception) -> str:
    return "do not fit into memory" if failure_kind(error) == "memory" else f"failed ({type(error).__name__}: {error})"


def _log(cells: Sequence[CellTrainer], line: str) -> None:
    for cell in cells:
        with suppress(OSError):  # a full disk fails a cell where it saves, not here
            cell.files.log(line)
