"""The heads of VSE++, and of vectors, of several cells as batched products."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, normalize

from goal_core.models.heads import Heads
from goal_core.models.sequences import pack
from goal_core.models.stacked.gru import stacked_gru


class StackedVectors(Heads):
    """What `VectorHeads` compute, for C cells at once.

    Args:
        parameters: theirs by name, each with the cells in front.
    """

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._parameters_of_cells = parameters
        self._cells = len(next(iter(parameters.values())))

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map vectors (B, F) to unit vectors (C, B, D)."""
        return self._mapped("image", features)

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Map vectors (B, G) to unit vectors (C, B, D)."""
        return self._mapped("text", tokens_BL)

    def _mapped(self, side: str, vectors_BF: Tensor) -> Tensor:
        unit, weight_CDF = normalize(vectors_BF, dim=-1), self._parameters_of_cells.get(f"{side}.fc.weight")
        if weight_CDF is None:
            return unit.expand(self._cells, *unit.shape)
        bias_CD = self._parameters_of_cells[f"{side}.fc.bias"]
        # All cells have the same inputs, so that their linear layers are one.
        mapped = linear(unit, weight_CDF.flatten(0, 1), bias_CD.flatten())
        return normalize(mapped.view(-1, *bias_CD.shape).transpose(0, 1), dim=-1)


class StackedVsepp(StackedVectors):
    """What `VseppHeads` compute, for C cells at once."""

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Map padded captions to unit vectors (C, B, D)."""
        packed = pack(tokens_BL, lengths_B)
        table_CVW = self._parameters_of_cells["text.embed.weight"]
        cells, vocabulary, _ = table_CVW.shape
        first_C1 = torch.arange(cells, device=table_CVW.device)[:, None] * vocabulary
        words_CTW = embedding(packed.data + first_C1, table_CVW.flatten(0, 1))
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        gru = (self._parameters_of_cells[f"text.rnn.{name}_l0"] for name in names)
        states_CBD = stacked_gru(words_CTW, packed.batch_sizes.tolist(), *gru)
        assert packed.unsorted_indices is not None
        return normalize(states_CBD.index_select(1, packed.unsorted_indices), dim=-1)
