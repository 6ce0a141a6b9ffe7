"""Sets of vectors in VSE-infinity: the cells that training drops, and the operator that pools the rest."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from goal_core.basics.devices import send
from goal_core.models.sequences import length_mask

ABSENT: Final = -1e4
"""Score of ranks beyond a set's size, and value that makes its padding sort last."""
TEMPERATURE: Final = 0.1


class GeneralizedPooling(nn.Module):
    """Sorts each dimension over a set's elements and sums the ranks, weighted by a small GRU.

    Args:
        width: of the position codes and of the GRU's states in each direction.

    Source: VSE-infinity, section 3.2.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.score = nn.Linear(width, 1, bias=False)

    def weights(self, lengths_B: Tensor) -> Tensor:
        """Weight of each rank for sets of these sizes; each row sums to 1 over its own ranks.

        Args:
            lengths_B: sizes, (B,) int64 on the CPU, each at least 1.

        Returns:
            (B, N), N being the largest size.
        """
        sizes_S, which_B = sizes_of(lengths_B)  # the weights depend on the size alone
        device = self.score.weight.device
        longest = int(sizes_S[0])
        codes_NW = send(position_codes(longest, self.width), device)
        mask_SN = length_mask(sizes_S, longest, device)
        codes_SNW = codes_NW * mask_SN[:, :, None]
        packed = pack_padded_sequence(codes_SNW, sizes_S, batch_first=True)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        both_SNW = (states[:, :, : self.width] + states[:, :, self.width :]) / 2
        scores_SN = self.score(both_SNW)[:, :, 0].float().masked_fill(~mask_SN, ABSENT)
        return torch.softmax(scores_SN / TEMPERATURE, dim=1)[send(which_B, device)]

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets.

        Args:
            features_BND: (B, N, D); rows past a set's size are ignored.
            lengths_B: sizes, (B,) int64 on the CPU, each in 1..N.

        Returns:
            (B, D).
        """
        weights_BN = self.weights(lengths_B)
        features_BND = features_BND[:, : weights_BN.shape[1]]
        mask_BN1 = length_mask(lengths_B, features_BND.shape[1], features_BND.device)[:, :, None]
        ranked_BND = features_BND.masked_fill(~mask_BN1, ABSENT).sort(dim=1, descending=True)[0]
        return (ranked_BND.masked_fill(~mask_BN1, 0) * weights_BN[:, :, None]).sum(dim=1)


def sizes_of(lengths_B: Tensor) -> tuple[Tensor, Tensor]:
    """The different sizes of sets, (S,), the largest first, and which of them each set has, (B,)."""
    sizes_S, which_B = torch.unique(lengths_B, return_inverse=True)
    return sizes_S.flip(0), len(sizes_S) - 1 - which_B


def position_codes(count: int, width: int) -> Tensor:
    """Sine and cosine codes of positions 0..count-1, interleaved, (count, width) float32."""
    rates = torch.exp(torch.arange(0, width, 2) * -(math.log(10000.0) / width))
    angles = torch.arange(count)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def drop_cells(features_BRF: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Drop each cell of an image with probability rate * u, u uniform in [0, 1); none where u <= rate.

    Draws (B,) and (B, R) uniform numbers from torch's global CPU generator.

    Returns:
        The kept cells, moved to the front and padded with zeros, (B, R', F), and how many each image keeps, (B,).

    Source: VSE-infinity's published code; an image that would lose every cell keeps them all.
    """
    shares_B = torch.rand(len(features_BRF))
    kept_BR = torch.rand(features_BRF.shape[:2]) > rate * shares_B[:, None]
    kept_BR |= (shares_B <= rate)[:, None] | ~kept_BR.any(dim=1, keepdim=True)
    lengths_B = kept_BR.sum(dim=1)
    order_BR = torch.argsort((~kept_BR).int(), dim=1, stable=True)[:, : int(lengths_B.max())]
    order_BR = send(order_BR, features_BRF.device)
    packed = features_BRF.gather(1, order_BR[:, :, None].expand(-1, -1, features_BRF.shape[2]))
    return packed * length_mask(lengths_B, packed.shape[1], packed.device)[:, :, None], lengths_B


def unit_vectors(vectors_BD: Tensor) -> Tensor:
    """Vectors of length 1 (B, D); a zero vector stays zero."""
    vectors = vectors_BD.float()  # in half precision 1e-8 is 0
    lengths_B1: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return (vectors / (lengths_B1 + 1e-8)).to(vectors_BD.dtype)
