"""Cells that train as one: their heads, objectives, clipping and optimiser as stacked tensors.

`Stacks` says which cells of a unit do so at the moment, `CellStack` does it. A cell keeps its own modules and its own
optimiser, but while it is in the stack their tensors are views of the stack's. So it saves, loads and leaves as a cell
by itself does, and its files do not tell how it was trained.

In warm-up epochs all objectives descend the same loss from the same weights: the cells of a seed are one model. It is
trained once, and every cell is a view of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from traceback import clear_frames

import torch
from torch import Tensor, nn

from goal_sweep.goal_core.basics.devices import fetched
from goal_sweep.goal_core.data.batches import Batch
from goal_sweep.goal_core.evaluation.recalls import Embedded, EvalSplit, embed_split
from goal_sweep.goal_core.models.heads import Encoder
from goal_sweep.goal_core.objectives import LOSS
from goal_sweep.goal_core.objectives.gradient_objective import NonFiniteError, StackedObjectives
from goal_sweep.goal_core.objectives.stats import ObjectiveStats, describe_unsound, named
from goal_sweep.goal_core.training.cells import optim
from goal_sweep.goal_core.training.cells.trainer import CellTrainer, StepOutcome

SplitShare = tuple[Embedded, float]
"""What a stack embedded of a split for one cell, and the cell's share of the seconds that it took."""


class Stacks:
    """Forms stacks anew whenever other cells are at a step: one has failed, or one that resumed later has caught up.

    Cells with settings of their own (`TrainingPlan.own`), such as another learning rate, form a stack with those that
    have the same; on a CPU also a cell with none beside it. What fails a stack as a whole, such as a lack of memory,
    fails its cells: to go on one by one would round differently.
    """

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._stacks: dict[object, CellStack] = {}
        """By what the cells of each have in common."""

    def step(
        self, cells: Sequence[CellTrainer], inputs: Tensor, captions: Batch, *, shared_s: float
    ) -> Mapping[str, tuple[StepOutcome | Exception, float]]:
        """Take a step of cells at the same one: by key the outcome and a share of the seconds, of those that stack."""
        taken: dict[str, tuple[StepOutcome | Exception, float]] = {}
        for alike in self._alike(cells):
            began = time.perf_counter()
            outcomes: Sequence[StepOutcome | Exception]
            try:
                outcomes = self._formed(alike).step(inputs, captions)
            except Exception as error:
                clear_frames(error.__traceback__)  # they hold the activations
                self._stacks.pop(_common(alike[0]), None)
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
                stack = self._formed(alike)
                images_CND, texts_CMD = map(stack.of_cells, embed_split(stack.encoder, split))
            except Exception as error:  # such as a lack of memory, which a cell by itself may have
                clear_frames(error.__traceback__)
                dissolve(alike)
                self._stacks.pop(_common(alike[0]), None)
                continue
            seconds = (time.perf_counter() - began) / len(alike)
            embedded = zip(stack.cells, images_CND, texts_CMD, strict=True)
            shares |= {cell.key: ((images, texts), seconds) for cell, images, texts in embedded}
        return shares

    def _alike(self, cells: Sequence[CellTrainer]) -> list[list[CellTrainer]]:
        """The cells to stack, by settings and loss; dissolves the stacks of other groups than these."""
        if not self._wanted:
            return []
        groups: dict[object, list[CellTrainer]] = {}
        for cell in cells:
            if cell.objective.triplet == LOSS:  # a baseline, whose gradient is its own autograd's
                continue
            groups.setdefault(_common(cell), []).append(cell)
        for common, stack in list(self._stacks.items()):
            if groups.get(common) != stack.cells:  # one failed, is at another step, or warm-up has ended
                dissolve(self._stacks.pop(common).cells)
        return [alike for alike in groups.values() if len(alike) > 1 or alike[0].encoder.device.type == "cpu"]

    def _formed(self, cells: Sequence[CellTrainer]) -> CellStack:
        if (common := _common(cells[0])) not in self._stacks:
            self._stacks[common] = CellStack(cells)
        return self._stacks[common]


class CellStack:
    """Cells at the same step of one stage, with equal settings but for their objective.

    M counts their models: one for each of C cells, or two that are equal where all cells are one model.
    """

    def __init__(self, cells: Sequence[CellTrainer]) -> None:
        self.cells, first = list(cells), cells[0]
        self._stage = first.stage
        named = [dict(cell.heads.named_parameters()) for cell in cells]
        self._is_one = len(cells) == 1 or (first.term == "hinge" and all(_is_copy(cell, first) for cell in cells[1:]))
        self._parameters = {name: nn.Parameter(self._shared([own[name] for own in named])) for name in named[0]}
        names = {id(parameter): name for name, parameter in named[0].items()}
        groups = [
            replace(group, parameters=tuple(self._parameters[names[id(parameter)]] for parameter in group.parameters))
            for group in optim.parameter_groups(first.heads, None, self._stage)
        ]
        self._optimizer = optim.build_optimizer(groups, self._stage)
        for name, parameter in self._parameters.items():
            owners = [(cell.optimizer, own[name]) for cell, own in zip(cells, named, strict=True)]
            self._optimizer.state[parameter] = self._stacked_state(owners)
        device, heads = first.encoder.device, first.heads.stacked(self._parameters)
        self._objectives = StackedObjectives([cell.objective for cell in cells], together=device.type != "cpu")
        self.encoder = Encoder(heads=heads, backbone=None, precision=first.unit.precision, device=device)
        self._before: Callable[[], object] = tuple
        """Waits for the last step."""

    def step(self, inputs: Tensor, batch: Batch) -> list[StepOutcome]:
        """One optimiser step of every cell from the same features (B, F); waits at most for the step before."""
        optim.set_lr(self._optimizer, optim.lr_at(self._stage, *self.cells[0].position))
        self._optimizer.zero_grad(set_to_none=True)
        self.encoder.train(True)
        stats, names, numbers = self._compute(inputs, batch)
        self._optimizer.step()
        self._before()  # so that the seconds of waiting for it are those of all cells
        self._before = table = cache(lambda: numbers().tolist())
        return [partial(_outcome, stats, names, table, number) for number in range(len(self.cells))]

    def of_cells(self, of_models: Tensor) -> Tensor:
        """What was computed for every model, (M, ...), for every cell, (C, ...)."""
        return of_models[:1].expand(len(self.cells), *of_models.shape[1:]) if self._is_one else of_models

    def _compute(self, inputs: Tensor, batch: Batch) -> tuple[ObjectiveStats, Sequence[str], Callable[[], Tensor]]:
        """Everything of a step before weights change: the gradients, clipped, and what to record, with its names."""
        first, stage = self.cells[0], self._stage
        ids = batch.image_index if first.heads.masks_same_image else None
        images_MBD = self.encoder.heads.encode_images(inputs, batch.region_lengths)
        texts_MBD = self.encoder.heads.encode_texts(batch.tokens, batch.lengths)
        losses, stats = self._objectives.forward_with_stats(self.of_cells(images_MBD), self.of_cells(texts_MBD), ids)
        if first.term == "hinge":
            losses = optim.sum_hinge(images_MBD, texts_MBD, first.objective.margin, ids)
        torch.autograd.backward(losses.sum() * optim.loss_scale(stage, *first.position))
        for parameter in self._parameters.values():
            if self._is_one and parameter.grad is not None:
                parameter.grad[1] = parameter.grad[0]  # objectives take the embeddings of the first
        norm_C = self.of_cells(optim.clip_each(self._parameters.values(), stage.grad_clip))
        names, numbers_KC = stats.numbers()
        table = torch.cat((numbers_KC, torch.stack((norm_C, stats.sound.to(norm_C))).to(numbers_KC)))
        return stats, names, fetched(table)

    def _models(self, of_cells: list[Tensor]) -> list[Tensor]:
        # A sum or product of one model rounds otherwise than one of several.
        return of_cells[:1] * 2 if self._is_one else of_cells

    def _shared(self, tensors: list[Tensor]) -> Tensor:
        """One tensor of all models, (M, ...); each cell's own becomes a view of it."""
        stack = torch.stack(self._models([tensor.detach() for tensor in tensors]))
        for tensor, row in zip(tensors, self.of_cells(stack), strict=True):
            tensor.data, tensor.grad = row, None
        return stack

    def _stacked_state(self, owners: list[tuple[torch.optim.Optimizer, nn.Parameter]]) -> dict[str, Tensor]:
        """Adam's state of one parameter of all models, which have taken equally many steps; cells' own are views."""
        zeros = torch.zeros_like(owners[0][1])
        fresh = {"step": torch.zeros((), device=zeros.device), "exp_avg": zeros, "exp_avg_sq": zeros}
        states = [optimizer.state.get(parameter) or fresh for optimizer, parameter in owners]
        slots = ("exp_avg", "exp_avg_sq")
        stack = {slot: torch.stack(self._models([state[slot] for state in states])) for slot in slots}
        step, rows = states[0]["step"].clone(), {slot: self.of_cells(stack[slot]) for slot in slots}
        for number, (optimizer, parameter) in enumerate(owners):
            optimizer.state[parameter] = {"step": step, **{slot: rows[slot][number] for slot in slots}}
        return {"step": step, **stack}


def _outcome(
    stats: ObjectiveStats, names: Sequence[str], table: Callable[[], list[list[float]]], number: int
) -> dict[str, float]:
    """What came of a step in one cell, from the statistics of its objective, its weights' gradient and `sound`."""
    *values, norm, sound = (row[number] for row in table())
    if not sound:
        images_BD, texts_BD = stats.gradient.images[number], stats.gradient.texts[number]
        raise NonFiniteError(describe_unsound(images=images_BD, texts=texts_BD))
    if number in stats.errors:
        raise stats.errors[number]
    return {**named(names, values), "weight_grad_norm": norm}


def dissolve(cells: Iterable[CellTrainer]) -> None:
    """Give every cell tensors of its own again, also where only some of them have become a stack's."""
    for cell in cells:
        for parameter in cell.heads.parameters():
            parameter.data = parameter.data.clone()
            if state := cell.optimizer.state.get(parameter):
                cell.optimizer.state[parameter] = {slot: value.clone() for slot, value in state.items()}
        for module in cell.heads.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # as CUDA's kernels want them


def _common(cell: CellTrainer) -> object:
    """What cells of a stack have in common: their settings and, in warm-up epochs, the loss."""
    return cell.stage, cell.objective.margin if cell.term == "hinge" else None


def _is_copy(cell: CellTrainer, other: CellTrainer) -> bool:
    """Whether cells have the same weights and optimiser state."""
    own, others = cell.tensors(), other.tensors()
    return own.keys() == others.keys() and all(torch.equal(tensor, others[name]) for name, tensor in own.items())
