"""The GRUs of several cells over the same captions, as batched products, written by hand, forward and backward.

There is one product of all cells for each place in a caption, and one for all places wherever none waits for another.
Autograd would add up the gradient of the recurrent weights place by place, and start three times as many kernels.

Captions that begin alike have the same states up to the word at which they part. So on a CPU the recurrence runs over
the tree of their beginnings: over a quarter of the words in the quickstart's batches need no state of their own.

In shapes C counts cells; N counts the nodes of the tree, level by level; W is the width of a word, H of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from goal_sweep.goal_core.basics.devices import send

_sigmoid_backward, _tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward
"""A gradient times the derivative of an activation, which is computed from the activation's value."""


class PrefixTree(NamedTuple):
    """The beginnings of captions, by their number of words; the parent of each is a word shorter."""

    words: Tensor
    """The last word of each, (N,) int64."""
    levels: list[tuple[slice, Tensor]]
    """The nodes of equally many words, and their parents' places among those before, int64; of the first, anything."""
    ends: Tensor
    """The node that is the whole caption, of each, (B,) int64."""

    @classmethod
    def of(cls, tokens_BL: Tensor, lengths_B: Tensor) -> PrefixTree:
        """The tree of ids (B, L), padded behind their numbers (B,), which are on the CPU and at least 1.

        On an accelerator captions share no node: to look at their words would be to wait for it.
        """
        device, longest, order_B = tokens_BL.device, tokens_BL.shape[1], torch.arange(len(lengths_B))
        is_node_BL = torch.arange(longest) < lengths_B[:, None]
        if device.type == "cpu":
            rows_BL = tokens_BL.masked_fill(~is_node_BL, -1)
            order_B = torch.from_numpy(np.lexsort(rows_BL.numpy().T[::-1]))
            rows_BL, is_node_BL = rows_BL[order_B], is_node_BL[order_B]
            is_node_BL[1:] &= (rows_BL[1:] != rows_BL[:-1]).cumsum(1) > 0
        level_N, row_N = is_node_BL.mT.nonzero(as_tuple=True)
        place_BL, sizes_L = is_node_BL.cumsum(0) - 1, is_node_BL.sum(0)
        stops_L, ends_B = sizes_L.cumsum(0), torch.empty_like(lengths_B)
        ends_B[order_B] = (place_BL + stops_L - sizes_L).gather(1, lengths_B[order_B, None] - 1)[:, 0]
        here = [slice(stop - size, stop) for stop, size in zip(stops_L.tolist(), sizes_L.tolist(), strict=True)]
        parents = send(place_BL[row_N, level_N - 1], device).tensor_split(stops_L[:-1])
        words_N = tokens_BL.flatten().index_select(0, send(order_B[row_N] * longest + level_N, device))
        return cls(words_N, [*zip(here, parents, strict=True)], send(ends_B, device))


def stacked_gru(
    words_CNW: Tensor, tree: PrefixTree, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor, bias_hh: Tensor
) -> Tensor:
    """The last state of every caption in every cell, (C, B, H), as `torch.nn.GRU` defines it.

    Args:
        words_CNW: vectors of the words of the tree's nodes.
        weight_ih: (C, 3H, W); the gates are reset, update, new. The others are (C, 3H, H), (C, 3H) and (C, 3H).
    """
    states: Tensor = _Gru.apply(tree, words_CNW, weight_ih, weight_hh, bias_ih, bias_hh)
    return states


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tree: PrefixTree, words: Tensor, *weights: Tensor) -> Tensor:
        """Keeps of every node: the parent's state, reset, update, the hidden part of new, and new."""
        weight_ih, weight_hh, bias_ih, bias_hh = weights
        width, above = weight_hh.shape[2], slice(0)
        inputs = torch.baddbmm(bias_ih[:, None], words, weight_ih.mT)
        states, olds = (inputs.new_empty(*words.shape[:2], width) for _ in range(2))
        kept = list[Tensor]()
        for here, parents in tree.levels:
            if here.start:
                old = torch.index_select(states[:, above], 1, parents, out=olds[:, here])
                gates = torch.baddbmm(bias_hh[:, None], old, weight_hh.mT)
            else:  # the first state is 0, and so is its product
                old = olds[:, here].zero_()
                gates = bias_hh[:, None].repeat(1, old.shape[1], 1)
            reset, update, hidden = gates.chunk(3, 2)
            gates[:, :, : 2 * width].add_(inputs[:, here, : 2 * width]).sigmoid_()
            new = torch.addcmul(inputs[:, here, 2 * width :], reset, hidden).tanh_()
            torch.lerp(new, old, update, out=states[:, here])
            kept += gates, new
            above = here
        ctx.tree = tree
        ctx.save_for_backward(words, weight_ih, weight_hh, olds, *kept)
        return states.index_select(1, tree.ends)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_ends: Tensor) -> tuple[Tensor | None, ...]:
        """Walks back over the levels; the weights' gradient is one product over all of them."""
        words, weight_ih, weight_hh, olds, *kept = ctx.saved_tensors
        width, levels = weight_hh.shape[2], ctx.tree.levels
        d_states = torch.zeros_like(olds).index_add_(1, ctx.tree.ends, d_ends)
        d_all = olds.new_empty(*olds.shape[:2], 4 * width)  # hidden, reset and update; then new, without hidden
        d_hidden, d_inputs, recurrent = d_all[:, :, : 3 * width], d_all[:, :, width:], weight_hh.roll(width, 1)
        for number, (here, parents) in reversed([*enumerate(levels)]):
            gates, new = kept[2 * number : 2 * number + 2]
            (reset, update, hidden), d_state = gates.chunk(3, 2), d_states[:, here]
            to_hidden, to_reset, to_update, to_new = d_all[:, here].chunk(4, 2)
            _tanh_backward(torch.addcmul(d_state, d_state, update, value=-1), new, grad_input=to_new)
            torch.mul(to_new, reset, out=to_hidden)
            torch.mul(to_new, hidden, out=to_reset)
            torch.mul(d_state, olds[:, here] - new, out=to_update)
            to_both = d_all[:, here, width : 3 * width]
            _sigmoid_backward(to_both, gates[:, :, : 2 * width], grad_input=to_both)
            if number:  # nothing waits for the gradient of the first state
                carried = torch.bmm(d_hidden[:, here], recurrent).addcmul_(d_state, update)
                d_states[:, levels[number - 1][0]].index_add_(1, parents, carried)
        d_bias, d_recurrent = d_all.sum(1), torch.bmm(d_hidden.mT, olds)
        return (
            None, torch.bmm(d_inputs, weight_ih), torch.bmm(d_inputs.mT, words), d_recurrent.roll(-width, 1),
            d_bias[:, width:], d_bias[:, : 3 * width].roll(-width, 1),
        )  # fmt: skip
