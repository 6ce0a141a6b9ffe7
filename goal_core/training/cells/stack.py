"""Cells that train as one: their heads, objectives, clipping and optimiser as stacked tensors.

A cell keeps its own modules and its own optimiser, but while it is in the stack their tensors are views of the stack's.
So it saves, loads and leaves as a cell by itself does, and its files do not tell how it was trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from goal_core.basics.devices import send
from goal_core.data import Batch
from goal_core.evaluation import Embedded, EvalSplit, embed_split
from goal_core.models import Encoder
from goal_core.objectives import NonFiniteError, StackedObjectives, StackedStats
from goal_core.objectives.gradient_objective import describe_non_finite
from goal_core.training.cells.optim import (
    build_optimizer,
    clip_each,
    loss_scale,
    lr_at,
    parameter_groups,
    set_lr,
    sum_hinge,
)
from goal_core.training.cells.trainer import CellTrainer, StepOutcome
from goal_core.training.cells.triplet_histogram import TripletHistogram


class CellStack:
    """Cells at the same step of one stage, with equal settings but for their objective.

    Args:
        cells: at least one; their heads have a stacked form, and no backbone of their own.
    """

    def __init__(self, cells: Sequence[CellTrainer]) -> None:
        self.cells, first = tuple(cells), cells[0]
        self._stage = first.stage
        named = [dict(cell.heads.named_parameters()) for cell in cells]
        self._parameters = {name: nn.Parameter(_shared([own[name] for own in named])) for name in named[0]}
        names = {id(parameter): name for name, parameter in named[0].items()}
        groups = [
            replace(group, parameters=tuple(self._parameters[names[id(parameter)]] for parameter in group.parameters))
            for group in parameter_groups(first.heads, None, self._stage)
        ]
        self._optimizer = build_optimizer(groups, self._stage)
        for name, parameter in self._parameters.items():
            owners = [(cell.optimizer, own[name]) for cell, own in zip(cells, named, strict=True)]
            self._optimizer.state[parameter] = _stacked_state(owners)
        self._objectives = StackedObjectives([cell.objective for cell in cells])
        self._margins = send(torch.tensor([cell.objective.margin for cell in cells]), first.encoder.device)
        self._counts = TripletHistogram.stack([cell.triplets for cell in cells])
        self.encoder = Encoder(
            heads=first.heads.stacked(self._parameters),
            backbone=None,
            precision=first.unit.precision,
            device=first.encoder.device,
        )

    def step(self, inputs: Tensor, batch: Batch) -> list[StepOutcome]:
        """One optimiser step of every cell; waits for the device once.

        Args:
            inputs: features (B, F), the same for all cells.
            batch: the captions, on the device.

        Returns:
            For each cell what to record of the step, or why the cell failed. The others' numbers do not depend on it.
        """
        first = self.cells[0]
        set_lr(self._optimizer, lr_at(self._stage, *first.position))
        self._optimizer.zero_grad(set_to_none=True)
        self.encoder.train(True)
        outcomes = self._compute(inputs, batch)
        self._optimizer.step()
        return outcomes

    def _compute(self, inputs: Tensor, batch: Batch) -> list[StepOutcome]:
        """Everything of a step before weights change: the gradients, clipped, and what to record."""
        first, stage = self.cells[0], self._stage
        with self.encoder.autocast():
            images_CBD = self.encoder.heads.encode_images(inputs, batch.region_lengths)
            texts_CBD = self.encoder.heads.encode_texts(batch.tokens, batch.lengths)
        ids = batch.ids if first.heads.masks_same_image else None
        losses_C, stats = self._objectives.forward_with_stats(images_CBD, texts_CBD, ids)
        if first.epoch < stage.warmup_epochs:
            losses_C = sum_hinge(images_CBD, texts_CBD, self._margins[:, None, None], ids)
        torch.autograd.backward(losses_C.sum() * loss_scale(stage, *first.position))
        norm_C = clip_each(self._parameters.values(), stage.grad_clip)
        names, numbers_KC = stats.numbers()
        table = torch.cat((numbers_KC, torch.stack((norm_C, stats.finite.to(norm_C))).to(numbers_KC)))
        outcomes = self._outcomes(stats, names, table.tolist(), images_CBD.detach(), texts_CBD.detach())
        TripletHistogram.count(self._counts, stats)
        return outcomes

    def _outcomes(
        self,
        stats: StackedStats,
        names: Sequence[str],
        table: Sequence[Sequence[float]],
        images_CBD: Tensor,
        texts_CBD: Tensor,
    ) -> list[StepOutcome]:
        *values_KC, norms, finite = table
        outcomes: list[StepOutcome] = []
        for number, values in enumerate(stats.dicts(names, values_KC)):
            if not finite[number]:
                outcomes.append(NonFiniteError(describe_non_finite(images_CBD[number], texts_CBD[number])))
            elif number in stats.errors:
                outcomes.append(stats.errors[number])
            else:
                outcomes.append({**values, "weight_grad_norm": norms[number]})
        return outcomes

    def embed(self, split: EvalSplit) -> dict[str, Embedded]:
        """The embeddings of a split by every cell, by the cell's key."""
        images_CND, texts_CMD = embed_split(self.encoder, split)
        both = zip(images_CND, texts_CMD, strict=True)
        return {cell.key: embedded for cell, embedded in zip(self.cells, both, strict=True)}


def dissolve(cells: Iterable[CellTrainer]) -> None:
    """Give every cell tensors of its own again, also where only some of them have become a stack's."""
    for cell in cells:
        for parameter in cell.heads.parameters():
            parameter.data = parameter.data.clone()
            state = cell.optimizer.state.get(parameter)
            if state:
                cell.optimizer.state[parameter] = {slot: value.clone() for slot, value in state.items()}
        for module in cell.heads.modules():
            if isinstance(module, nn.RNNBase):
                module.flatten_parameters()  # as CUDA's kernels want them
        cell.triplets.restore({name: value.clone() for name, value in cell.triplets.tensors().items()})


def _shared(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all cells, (C, ...); each cell's own becomes a view of it."""
    stack = torch.stack([tensor.detach() for tensor in tensors])
    for tensor, row in zip(tensors, stack, strict=True):
        tensor.data, tensor.grad = row, None
    return stack


def _stacked_state(owners: Sequence[tuple[torch.optim.Optimizer, nn.Parameter]]) -> dict[str, Tensor]:
    """Adam's state of one parameter of all cells, which have taken equally many steps; their own become views of it."""
    states = [optimizer.state.get(parameter) or _fresh_state(parameter) for optimizer, parameter in owners]
    steps = {float(state["step"]) for state in states}
    if len(steps) > 1:
        raise ValueError(f"cells whose optimisers have taken {sorted(steps)} steps cannot be stacked")
    stack = {slot: torch.stack([state[slot] for state in states]) for slot in ("exp_avg", "exp_avg_sq")}
    step = states[0]["step"].clone()
    for number, (optimizer, parameter) in enumerate(owners):
        optimizer.state[parameter] = {"step": step, **{slot: rows[number] for slot, rows in stack.items()}}
    return {"step": step, **stack}


def _fresh_state(parameter: nn.Parameter) -> dict[str, Tensor]:
    """Adam's state before the first step."""
    step = torch.zeros((), dtype=torch.float32, device=parameter.device)
    return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
