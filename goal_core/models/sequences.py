"""Sequences of different lengths: their masks, and themselves without padding, made without waiting for the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from goal_sweep.goal_core.basics.devices import send


def pack(rows_BL: Tensor, lengths_B: Tensor) -> PackedSequence:
    """What `pack_padded_sequence` gives for rows (B, L) or (B, L, W), ``batch_first`` and not sorted, bit for bit.

    That function copies the order of the sequences to the device in a way that waits for all that the device has to do.
    """
    sorted_B, order_B = torch.sort(lengths_B, descending=True)
    here, back = send(order_B, rows_BL.device), send(order_B.argsort(), rows_BL.device)
    packed = pack_padded_sequence(rows_BL.index_select(0, here), sorted_B, batch_first=True)
    return PackedSequence(packed.data, packed.batch_sizes, here, back)


def length_mask(lengths_B: Tensor, longest: int, device: torch.device) -> Tensor:
    """Whether each position of a padded row is before the row's end, (B, longest) bool on ``device``."""
    return torch.arange(longest, device=device) < send(lengths_B, device)[:, None]


def attention_mask(lengths_B: Tensor, longest: int, device: torch.device) -> Tensor:
    """Which of a caption's positions a BERT may attend to, (B, 1, 1, longest) bool on ``device``.

    In this shape transformers takes a mask as it is; for one in two dimensions it waits for the device.
    """
    return length_mask(lengths_B, longest, device)[:, None, None, :]
