"""Several processes that train a unit together, one for each GPU.

Every process has the whole model and encodes its own rows of each batch. The embeddings of all are gathered, so each
computes the objective of the whole batch and passes back the gradient of its own rows; the sum over the processes is
the gradient that one process has. Random draws are the rows of the whole batch's. So the numbers are those of one
device up to rounding.

The first process alone decides, evaluates and touches files. It sends the others the state of each cell at the start
and then every step to take (:mod:`goal_core.training.peer`). A process that fails alone leaves the others
waiting, so it ends them all: the unit starts again from what is saved, as after any death.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.basics.errors import CollapsedError, DivergedError, GoalError
from goal_sweep.goal_core.models import Pairs, Share
from goal_sweep.goal_core.objectives import NonFiniteError, gather_batch, gather_rows

_CPU: Final = torch.device("cpu")
ALIKE: Final = (NonFiniteError, DivergedError, CollapsedError)
"""Errors that all processes meet at the same step, because they have the same numbers."""


class RanksLostError(GoalError):
    """A process that trains this unit together with others has failed or died."""

    def __init__(self, reason: str, kind: str = "died") -> None:
        super().__init__(reason)
        self.kind = kind
        """See :attr:`goal_core.training.plan.TrainingFailed.kind`."""


class BrokenError(BaseException):
    """Leaves the training loop when a process is lost. Not an error of the cell that is in training."""

    def __init__(self, reason: str, kind: str) -> None:
        super().__init__(reason)
        self.kind = kind


class Ranks:
    """The processes of a unit, as one of them sees them. With one process nothing is sent.

    Args:
        rank: number of this process, from 0.
        processes: how many there are. With several, torch's default process group is theirs.
    """

    def __init__(self, rank: int = 0, processes: int = 1) -> None:
        self.rank, self.processes = rank, processes

    def share(self, chunk: int = 0) -> Share:
        """What this process encodes of each batch, and how much of it at a time."""
        return Share(rank=self.rank, processes=self.processes, chunk=chunk)

    def rows(self, total: int) -> slice:
        """The rows of a batch of ``total`` pairs that this process encodes."""
        return self.share().rows(total).slice

    def gather(self, pairs: Pairs, total: int) -> Pairs:
        """The pairs of the whole batch, from those of each process.

        The embeddings pass back the gradient of this process's rows. The context passes back the sum of the gradients
        of all processes, because each computes only a part of the framework's own loss.

        Args:
            pairs: of this process's rows.
            total: pairs of the batch.
        """
        if self.processes == 1:
            return pairs
        owned = [Share(rank=rank, processes=self.processes).owned(total) for rank in range(self.processes)]
        most = max(owned)
        # Gathering needs equal shapes.
        kept = torch.cat([torch.arange(count) + rank * most for rank, count in enumerate(owned)])
        kept = send(kept, pairs.image_BD.device)
        own = _padded(pairs.image_BD, most), _padded(pairs.text_BD, most)
        image, text, _ = gather_batch(*own, reduction="sum", check_shapes=False)
        context = [_padded(tensor, most) for tensor in pairs.columns()[2:]]
        everyone = _GatherAndSum.apply(*context) if context else ()
        return pairs.with_columns([tensor[kept] for tensor in (image, text, *everyone)])

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace each gradient by its sum over the processes."""
        if self.processes == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        together = torch.cat([gradient.reshape(-1) for gradient in gradients])  # one message instead of hundreds
        distributed.all_reduce(together)
        totals = torch.split(together, [gradient.numel() for gradient in gradients])
        for gradient, total in zip(gradients, totals, strict=True):
            gradient.copy_(total.view_as(gradient))

    def check(self, parameters: Mapping[str, Iterable[nn.Parameter]]) -> None:
        """Let the other processes check that they have the first one's weights, of each of these cells."""
        for key, own in parameters.items() if self.processes > 1 else ():
            self.say("check", key, tensors={"weights": weight_sums(own)})

    def check_same(self, own: Iterable[nn.Parameter], first: Tensor) -> None:
        """Check that this process has the weights of the first one, by their :func:`weight_sums`.

        Raises:
            RanksLostError: it has others, so that the numbers would be nobody's.
        """
        if not torch.allclose(weight_sums(own), first, rtol=1e-4):
            raise RanksLostError(f"process {self.rank} has come to other weights than the first one", "error")

    def send(self, message: Any, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Send the other processes a message. Only the first process may.

        Args:
            message: plain values.
            tensors: by name, of any device and dtype.
        """
        if self.processes == 1:
            return
        own = {name: tensor.detach().cpu() for name, tensor in (tensors or {}).items()}
        distributed.broadcast_object_list([message, own], src=0, device=_CPU)

    def say(self, *message: Any, tensors: Mapping[str, Tensor] | None = None) -> None:
        """Send a message as something that all processes do together."""
        with self.together():
            self.send(message, tensors)

    def receive(self) -> tuple[Any, dict[str, Tensor]]:
        """The next message of the first process, and its tensors, on the CPU."""
        received: list[Any] = [None, None]
        distributed.broadcast_object_list(received, src=0, device=_CPU)
        return received[0], received[1]

    @contextmanager
    def together(self) -> Iterator[None]:
        """Around what all processes do together: an error that is not alike on all of them ends the unit."""
        yield

    def finish(self) -> None:
        """Tell the other processes that there is nothing more to do."""

    def close(self) -> None:
        """End the other processes, whatever they do."""


ALONE: Final = Ranks()


def weight_sums(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The sum of the absolute values of each parameter, (P,) float64 on the CPU."""
    return torch.stack([parameter.detach().abs().sum(dtype=torch.float64) for parameter in parameters]).cpu()


def _padded(tensor: Tensor, rows: int) -> Tensor:
    return pad(tensor, [0, 0] * (tensor.ndim - 1) + [0, rows - len(tensor)]) if len(tensor) < rows else tensor


class _GatherAndSum(torch.autograd.Function):
    """The rows of all processes; backward adds up the gradients of all, in the same order on each process."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.shapes = [(len(tensor), tensor.dtype) for tensor in tensors]
        gathered = tuple(gather_rows(tensor) for tensor in tensors)
        ctx.mark_non_differentiable(*[rows for rows in gathered if not rows.is_floating_point()])
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        own: list[Tensor | None] = []
        for gradient, (rows, dtype) in zip(upstream, ctx.shapes, strict=True):
            if gradient is None or not dtype.is_floating_point:
                own.append(None)
                continue
            total = gradient.float().contiguous()
            distributed.all_reduce(total)
            first = distributed.get_rank() * rows
            own.append(total[first : first + rows].to(dtype))
        return tuple(own)
