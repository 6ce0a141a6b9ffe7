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


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseGradient:
    """G as entries, to be added where they coincide: a pull on each pair and two pushes on its hardest negatives."""

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

    def for_images(self, texts_ND: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        """``scale`` G Y, shape (N, D)."""
        rows, columns, values = self.entries()
        return _weighted_row_sums(rows, columns, values * scale, texts_ND)

    def for_texts(self, images_ND: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        """``scale`` Gᵀ X, shape (N, D)."""
        rows, columns, values = self.entries()
        return _weighted_row_sums(columns, rows, values * scale, images_ND)


def _weighted_row_sums(target: Tensor, source: Tensor, values: Tensor, table_ND: Tensor) -> Tensor:
    """Row t of the result is the sum of values[e] table[source[e]] over the entries e with target[e] = t.

    Sorted by target, it is one embedding bag a row: one pass, and one order of addition on every device.
    """
    target, order = target.sort(stable=True)
    first_N = torch.searchsorted(target, torch.arange(len(table_ND), device=target.device))
    return embedding_bag(source[order], table_ND, first_N, mode="sum", per_sample_weights=values[order])


class AttachGradient(torch.autograd.Function):
    """Gives a number the gradient G with respect to the embeddings, so that its backward is the objective."""

    @staticmethod
    def forward(ctx: Any, image_emb: Tensor, text_emb: Tensor, value: Tensor, gradient: SparseGradient) -> Tensor:
        """Returns ``value``; keeps the embeddings and 5N numbers for backward."""
        ctx.save_for_backward(image_emb, text_emb)
        ctx.gradient = gradient
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """``upstream`` x (G Y, Gᵀ X), in the embeddings' dtypes."""
        image_emb, text_emb = ctx.saved_tensors
        gradient: SparseGradient = ctx.gradient
        dtype = gradient.pull.dtype
        upstream = upstream.to(dtype)
        d_image = d_text = None
        if ctx.needs_input_grad[0]:
            d_image = gradient.for_images(text_emb.to(dtype), upstream).to(image_emb.dtype)
        if ctx.needs_input_grad[1]:
            d_text = gradient.for_texts(image_emb.to(dtype), upstream).to(text_emb.dtype)
        return d_image, d_text, None, None


class AttachGradients(torch.autograd.Function):
    """Gives each cell's number its gradients with respect to the embeddings, (C, N, D)."""

    @staticmethod
    def forward(
        ctx: Any, images_CND: Tensor, texts_CND: Tensor, values_C: Tensor, d_images: Tensor, d_texts: Tensor
    ) -> Tensor:
        """Returns ``values_C``; keeps the gradients for backward."""
        ctx.save_for_backward(d_images, d_texts)
        ctx.dtypes = images_CND.dtype, texts_CND.dtype
        return values_C.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream_C: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """``upstream`` x the gradients, in the embeddings' dtypes."""
        # Asking for the factor's value would make an accelerator wait; on the CPU it saves a copy of the gradients.
        plain = upstream_C.device.type == "cpu" and bool((upstream_C == 1).all())
        d_images, d_texts = (
            (gradient if plain else gradient * upstream_C.to(gradient)[:, None, None]).to(dtype) if needed else None
            for gradient, dtype, needed in zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad[:2], strict=True)
        )
        return d_images, d_texts, None, None, None
