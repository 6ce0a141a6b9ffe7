"""The gradient with respect to S, which has at most three entries a row, and how it reaches the embeddings.

With G = dL/dS the embeddings' gradients are dL/dX = G Y and dL/dY = Gᵀ X. G is never formed: each row of the result is
a weighted sum of a few rows of the other embedding, O(N D) in time and memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gradient:
    """A gradient with respect to the embeddings of a batch, or to those of C cells."""

    images: Tensor
    """The image embeddings X in the dtype of the computation, shape (N, D), or (C, N, D)."""
    texts: Tensor
    """The text embeddings Y, likewise."""

    def both(self, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """dL/dX and dL/dY, shaped as X and Y; times ``scale``, shape () or (C,), if there is one."""
        raise NotImplementedError

    def norm(self) -> Tensor:
        """Frobenius norm of both together, shape () or (C,)."""
        return torch.hypot(*(torch.linalg.vector_norm(rows.flatten(-2), dim=-1) for rows in self.both()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseGradient(Gradient):
    """A gradient that is kept, not made anew when it is needed."""

    d_images: Tensor
    d_texts: Tensor
    d_own: tuple[Tensor, ...] = ()
    """Of a baseline, dL / d what the model brings for it."""

    def both(self, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See :class:`Gradient`."""
        # Asking for the factor's value would make an accelerator wait; on the CPU it saves a copy of the gradient.
        if scale is None or (scale.device.type == "cpu" and bool((scale == 1).all())):
            return self.d_images, self.d_texts
        return self.d_images * scale[..., None, None], self.d_texts * scale[..., None, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseGradient(Gradient):
    """G as entries, to be added where they coincide: a pull on each pair and two pushes on its hardest negatives.

    That of C cells is G of one batch of C N pairs, in which no pair meets one of another cell.
    """

    pull: Tensor
    """-(T P+ + T' P'+), at G[i, i], shape (N,)."""
    push_i2t: Tensor
    """T P- of image i, at G[i, j] with j its hardest text, shape (N,)."""
    push_t2i: Tensor
    """T' P'- of text i, at G[k, i] with k its hardest image, shape (N,)."""
    text_of_image: Tensor
    """j, shape (N,), int64."""
    image_of_text: Tensor
    """k, shape (N,), int64."""

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, columns and values of G, each of shape (3N,); a position may occur more than once."""
        own_N = torch.arange(len(self.pull), device=self.pull.device)
        return (
            torch.cat((own_N, own_N, self.image_of_text)),
            torch.cat((own_N, self.text_of_image, own_N)),
            torch.cat((self.pull, self.push_i2t, self.push_t2i)),
        )

    def both(self, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """G Y and Gᵀ X; only of one batch with a ``scale``."""
        rows, columns, values = self.entries()
        values = values if scale is None else values * scale
        of_images = _weighted_row_sums(rows, columns, values, self.texts)
        return of_images, _weighted_row_sums(columns, rows, values, self.images)


def _weighted_row_sums(target: Tensor, source: Tensor, values: Tensor, table: Tensor) -> Tensor:
    """Row t of the result is the sum of values[e] table[source[e]] over the entries e with target[e] = t.

    Sorted by target, it is one embedding bag a row: one pass, and one order of addition on every device. The rows of C
    cells, (C, N, D), count on from one cell to the next.
    """
    rows = table.flatten(0, -2)
    target, order = target.sort(stable=True)
    first_N = torch.searchsorted(target, torch.arange(len(rows), device=target.device))
    return embedding_bag(source[order], rows, first_N, mode="sum", per_sample_weights=values[order]).view_as(table)


class AttachGradient(torch.autograd.Function):
    """Gives a number, or one of each cell, a gradient with respect to the embeddings: its backward is the objective."""

    @staticmethod
    def forward(ctx: Any, image_emb: Tensor, text_emb: Tensor, value: Tensor, gradient: Gradient) -> Tensor:
        """Returns ``value``, shape () or (C,); keeps the gradient for backward."""
        ctx.save_for_backward(image_emb, text_emb)
        ctx.gradient = gradient
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """``upstream`` x the gradients, in the embeddings' dtypes."""
        image_emb, text_emb = ctx.saved_tensors  # which fails where they have been written to
        gradient: Gradient = ctx.gradient
        d_image, d_text = gradient.both(upstream.to(gradient.images.dtype))
        return d_image.to(image_emb.dtype), d_text.to(text_emb.dtype), None, None
