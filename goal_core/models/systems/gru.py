"""The GRUs of several cells over the same captions, as batched products.

Written by hand, forward and backward: one product of all cells for each time step, and one for all time steps wherever
no step waits for another. Autograd would add up the gradient of the recurrent weights step by step, and start three
times as many kernels.

Shapes have C cells in front; T counts the words of a batch, in the order of a packed sequence (all first words, then
all second words, and so on, each time the longest caption first); H is the width of the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def stacked_gru(
    words_CTW: Tensor, sizes: Sequence[int], weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor
) -> Tensor:
    """The last state of every sequence in every cell, as `torch.nn.GRU` defines it.

    Products are in the dtype of autocast where it is on, everything else is in float32.

    Args:
        words_CTW: inputs (C, T, W) in packed order.
        sizes: sequences that have a word at each time step, never rising; they sum to T.
        weight_ih: (C, 3H, W); the gates are reset, update, new. The others are (C, 3H, H), (C, 3H) and (C, 3H).

    Returns:
        (C, B, H), the longest sequence first, in the dtype of the biases.
    """
    kind = words_CTW.device.type
    if torch.is_autocast_enabled(kind):
        half = torch.get_autocast_dtype(kind)
        words_CTW, weight_ih, weight_hh = words_CTW.to(half), weight_ih.to(half), weight_hh.to(half)
    with torch.autocast(kind, enabled=False):
        inputs = torch.bmm(words_CTW, weight_ih.mT).to(bias_ih.dtype) + bias_ih[:, None]
        states: Tensor = _Recurrence.apply(inputs, weight_hh, bias_hh, tuple(sizes))
    return states


class _Recurrence(torch.autograd.Function):
    """From the inputs' part of the gates (C, T, 3H) to the last states (C, B, H)."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight_hh: Tensor, bias_hh: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """Keeps of every word: the gates after their activation, the state before, and the new gate's hidden part."""
        cells, words, width = len(inputs), inputs.shape[1], inputs.shape[2] // 3
        transposed, bias = weight_hh.mT, bias_hh[:, None]
        gates = torch.empty_like(inputs)
        before = inputs.new_zeros(cells, words, width)
        hidden_new = torch.empty_like(before)
        state = inputs.new_zeros(cells, sizes[0], width)
        for here, size in _steps(sizes):
            old = before[:, here]
            old.copy_(state[:, :size])
            hidden = torch.bmm(old.to(weight_hh.dtype), transposed).to(inputs.dtype).add_(bias)
            both = torch.add(inputs[:, here, : 2 * width], hidden[:, :, : 2 * width]).sigmoid_()
            new = torch.addcmul(inputs[:, here, 2 * width :], both[:, :, :width], hidden[:, :, 2 * width :]).tanh_()
            torch.lerp(new, old, both[:, :, width:], out=state[:, :size])
            gates[:, here, : 2 * width] = both
            gates[:, here, 2 * width :] = new
            hidden_new[:, here] = hidden[:, :, 2 * width :]
        ctx.save_for_backward(gates, before, hidden_new, weight_hh)
        ctx.sizes = sizes
        return state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_states: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Walks back over the time steps; the weights' gradient is one product over all of them."""
        gates, before, hidden_new, weight_hh = ctx.saved_tensors
        width = before.shape[2]
        d_inputs, d_hidden = torch.empty_like(gates), torch.empty_like(gates)
        d_state = d_states.clone()
        for here, size in reversed(list(_steps(ctx.sizes))):
            reset, update, new = gates[:, here].split(width, 2)
            upstream = d_state[:, :size]
            d_new = (upstream * (1 - update)).mul_(1 - new * new)
            d_update = (before[:, here] - new).mul_(upstream).mul_(update).mul_(1 - update)
            d_reset = (d_new * hidden_new[:, here]).mul_(reset).mul_(1 - reset)
            d_inputs[:, here] = torch.cat((d_reset, d_update, d_new), 2)
            d_hidden[:, here] = torch.cat((d_reset, d_update, d_new * reset), 2)
            carried = torch.bmm(d_hidden[:, here].to(weight_hh.dtype), weight_hh).to(d_state.dtype)
            d_state[:, :size] = carried.addcmul_(upstream, update)
        d_weight = torch.bmm(d_hidden.mT.to(weight_hh.dtype), before.to(weight_hh.dtype))
        return d_inputs, d_weight, d_hidden.sum(1), None


def _steps(sizes: Sequence[int]) -> Iterator[tuple[slice, int]]:
    """For each time step the words at it, and how many they are."""
    start = 0
    for size in sizes:
        yield slice(start, start + size), size
        start += size
