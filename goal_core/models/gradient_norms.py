"""What each of several losses sends back to the tensors that they share, noted in one backward pass of their sum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor


class GradientNorms:
    """Squared norms of gradients, by the loss that sent them.

    A batch that is encoded in chunks has a backward pass for each, whose squares add up.
    """

    def __init__(self) -> None:
        self._squares: dict[str, Tensor] = {}

    def watch(self, loss: str, tensor: Tensor, of: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """A view of a tensor for one loss to read.

        Args:
            loss: the name under which the gradient that reaches the view is noted.
            tensor: where it has no gradient, nothing is noted.
            of: maps that gradient to the one whose norm counts; None: itself.
        """
        view = tensor.view_as(tensor)
        if view.requires_grad:
            view.register_hook(partial(self._add, loss, of))  # type: ignore[no-untyped-call]  # of torch
        return view

    def take(self) -> dict[str, Tensor]:
        """The squared norms since the last call, float32 scalars."""
        squares, self._squares = self._squares, {}
        return squares

    def _add(self, loss: str, of: Callable[[Tensor], Tensor] | None, gradient: Tensor) -> None:
        gradient = gradient.detach()
        square = (gradient if of is None else of(gradient)).float().square().sum()
        self._squares[loss] = self._squares[loss] + square if loss in self._squares else square
