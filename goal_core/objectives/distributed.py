"""Negatives from all processes of a distributed run; the gradient does not depend on how many processes there are."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from goal_sweep.goal_core.objectives.gradient_objective import ShapeError, check_batch


def gather_batch(
    image_emb: Tensor,
    text_emb: Tensor,
    ids: Tensor | None = None,
    *,
    reduction: Literal["mean", "sum"] = "mean",
    check_shapes: bool = True,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The batch of all processes, in order of rank, for ``objective(*gather_batch(images, texts, ids))``.

    Every process computes the whole objective and passes back its own rows of the gradient, so backward communicates
    nothing. After the parameters' gradients are reduced over the processes they equal those of one process with the
    whole batch. Without an initialised process group, or with one process, the inputs come back as they are.

    Args:
        image_emb: this process's image embeddings, shape (N, D); the same N on all.
        text_emb: this process's text embeddings, shape (N, D).
        ids: this process's ids, shape (N,), on all processes or on none.
        reduction: how parameter gradients are reduced afterwards: `mean` (DistributedDataParallel) or `sum`.
        check_shapes: compare the shapes first, which waits for the device. Without it, unequal ones hang or abort.

    Returns:
        Image and text embeddings of shape (W N, D) for W processes, and the ids of shape (W N,) or None.

    Raises:
        ShapeError: the embeddings do not fit each other, or the processes hold batches of different shapes.
    """
    check_batch(image_emb, text_emb, ids)
    num_processes = distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1
    if num_processes == 1:
        return image_emb, text_emb, ids
    if check_shapes:
        shape = torch.tensor([*image_emb.shape, int(ids is not None)], device=image_emb.device)
        shapes = gather_rows(shape[None]).tolist()
        if any(other != shapes[0] for other in shapes):
            raise ShapeError(f"all processes need batches of one shape, with or without ids; got (N, D, ids) {shapes}")
    factor = float(num_processes) if reduction == "mean" else 1.0
    return (
        _GatherRows.apply(image_emb, factor),
        _GatherRows.apply(text_emb, factor),
        None if ids is None else gather_rows(ids),
    )


def gather_rows(local: Tensor) -> Tensor:
    """The rows of all processes, in order of rank, from those of this one; the same shape on all. No gradient."""
    parts = [torch.empty_like(local) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, local.contiguous())
    return torch.cat(parts)


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local_ND: Tensor, factor: float) -> Tensor:
        ctx.factor, ctx.num_rows = factor, len(local_ND)
        return gather_rows(local_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        first = distributed.get_rank() * ctx.num_rows
        return upstream[first : first + ctx.num_rows] * ctx.factor, None
