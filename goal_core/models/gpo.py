"""Generalised pooling operator: a learned weight for each rank of the sorted features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

_ABSENT = -1e4
"""Score of a rank that an item does not have, and value under which its features sort last."""
_TEMPERATURE = 0.1


class GeneralizedPooling(nn.Module):
    """Sorts each dimension over a set's elements and sums the ranks with weights that a small GRU gives each rank.

    Args:
        width: of the position codes and of the GRU's states in each direction.

    Source: VSE-infinity (Chen et al., CVPR 2021), section 3.2.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.score = nn.Linear(width, 1, bias=False)

    def weights(self, lengths_B: Tensor) -> Tensor:
        """Weight of each rank of sets of these sizes; a row sums to 1 over its own ranks.

        Args:
            lengths_B: sizes, (B,) int64 on the CPU, each at least 1.

        Returns:
            (B, N), N being the largest size.
        """
        sizes_S, which_B = torch.unique(lengths_B, return_inverse=True)  # the weights depend on the size alone
        device = self.score.weight.device
        longest = int(sizes_S[-1])
        codes_NW = position_codes(longest, self.width).to(device)
        there_SN = (torch.arange(longest) < sizes_S[:, None]).to(device)
        codes_SNW = codes_NW * there_SN[:, :, None]
        packed = pack_padded_sequence(codes_SNW, sizes_S, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        both_SNW = (states[:, :, : self.width] + states[:, :, self.width :]) / 2
        scores_SN = self.score(both_SNW)[:, :, 0].float().masked_fill(~there_SN, _ABSENT)
        return torch.softmax(scores_SN / _TEMPERATURE, dim=1)[which_B.to(device)]

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets.

        Args:
            features_BND: (B, N, D); rows past a set's size are ignored.
            lengths_B: sizes, (B,) int64 on the CPU, the largest being N.

        Returns:
            (B, D).
        """
        weights_BN = self.weights(lengths_B)
        there_BN1 = (torch.arange(features_BND.shape[1]) < lengths_B[:, None]).to(features_BND.device)[:, :, None]
        ranked_BND = features_BND.masked_fill(~there_BN1, _ABSENT).sort(dim=1, descending=True)[0]
        return (ranked_BND.masked_fill(~there_BN1, 0) * weights_BN[:, :, None]).sum(dim=1)


def position_codes(count: int, width: int) -> Tensor:
    """Sine and cosine codes of positions 0..count-1, interleaved, (count, width) float32."""
    rates = torch.exp(torch.arange(0, width, 2) * -(math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
