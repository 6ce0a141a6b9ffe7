"""VSE++'s heads of several cells as batched products."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, normalize

from goal_core.models.packed import pack
from goal_core.models.stacked_gru import stacked_last_states


class StackedVsepp:
    """What `ImageHead` and `GruTextEncoder` compute, for C cells at once.

    Args:
        parameters: those of `VseppHeads` by name, each with the cells in front.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self._parameters = parameters

    def train(self, mode: bool) -> None:
        """Do nothing: these heads are the same in training and evaluation."""

    def images(self, features_BF: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map backbone features (B, F), one vector per image, to unit vectors (C, B, D)."""
        weight_CDF, bias_CD = (self._parameters[f"image.fc.{name}"] for name in ("weight", "bias"))
        # All cells have the same inputs, so that their linear layers are one.
        mapped = linear(normalize(features_BF, dim=-1), weight_CDF.flatten(0, 1), bias_CD.flatten())
        return normalize(mapped.view(-1, *bias_CD.shape).transpose(0, 1), dim=-1)

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Embed captions.

        Args:
            tokens_BL: int64 word ids, (B, L), padded with 0 after each caption's end.
            lengths_B: int64 number of words of each caption, (B,), on the CPU, each at least 1.

        Returns:
            Unit vectors (C, B, D).
        """
        packed = pack(tokens_BL, lengths_B)
        table_CVW = self._parameters["text.embed.weight"]
        cells, vocabulary, _ = table_CVW.shape
        first_C1 = torch.arange(cells, device=table_CVW.device)[:, None] * vocabulary
        words_CTW = embedding(packed.data + first_C1, table_CVW.flatten(0, 1))
        gru = (self._parameters[f"text.rnn.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        states_CBD = stacked_last_states(words_CTW, packed.batch_sizes.tolist(), *gru)
        assert packed.unsorted_indices is not None
        return normalize(states_CBD.index_select(1, packed.unsorted_indices), dim=-1)
