"""VSE++ (Faghri et al., BMVC 2018): a pooled image vector and a GRU's last state in one joint space.

With it come the same small heads on vectors that any encoders have computed, and both of several cells at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, normalize

from goal_sweep.goal_core.basics.errors import ConfigError
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.heads import Heads, length_mask, pack
from goal_sweep.goal_core.models.hub import build_encoder, states_width, word_states
from goal_sweep.goal_core.models.stacked_gru import PrefixTree, stacked_gru


class ImageHead(nn.Module):
    """l2norm -> linear -> l2norm."""

    def __init__(self, num_features: int, embed_dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(num_features, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, features_BF: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map backbone features (B, F), one vector per image, to unit vectors (B, D)."""
        return normalize(self.fc(normalize(features_BF, dim=-1)), dim=-1)


class GruTextEncoder(nn.Module):
    """Word embedding -> one-directional GRU -> state after the last word -> l2norm."""

    def __init__(self, vocab_size: int, word_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, word_dim)
        self.rnn = nn.GRU(word_dim, embed_dim, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of ids (B, L), padded with 0, and their numbers (B,), on the CPU, each at least 1."""
        if torch.compiler.is_exporting():  # exported programs have no packed sequences
            words_BLW, gru = self.embed(tokens_BL), tuple(self.rnn.all_weights[0])
            first_1BD = words_BLW.new_zeros(1, words_BLW.shape[0], self.rnn.hidden_size)
            states_BLD, _ = torch.gru(words_BLW, first_1BD, gru, True, 1, 0.0, False, False, True)
            last_B1D = (lengths_B - 1)[:, None, None].expand(-1, 1, states_BLD.shape[2])
            return normalize(states_BLD.gather(1, last_B1D)[:, 0], dim=-1)
        _, state_1BD = self.rnn(pack(self.embed(tokens_BL), lengths_B))
        return normalize(state_1BD[0], dim=-1)


class StatesTextEncoder(nn.Module):
    """A text encoder -> mean of its last states -> linear -> l2norm."""

    def __init__(self, encoder: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.fc = nn.Linear(states_width(encoder), embed_dim)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        mask_BL = length_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        total_BW = (word_states(self.encoder, tokens_BL, lengths_B) * mask_BL[:, :, None]).sum(1)
        return normalize(self.fc(total_BW / mask_BL.sum(1, keepdim=True)), dim=-1)


def text_head(model: ModelConfig, vocab_size: int) -> nn.Module:
    """The text encoder that `model.text` names, which maps padded captions and their lengths to unit vectors (B, D)."""
    if model.text.encoder:
        return StatesTextEncoder(build_encoder(model.text.encoder, vocab_size), model.embed_dim)
    return GruTextEncoder(vocab_size, model.text.word_dim, model.embed_dim)


class VseppHeads(Heads):
    """Everything of VSE++ that trains while the backbone is frozen; cells of one seed start equal."""

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = ImageHead(num_features, model.embed_dim)
            self.text = text_head(model, vocab_size)

    def stacked(self, tensors: Mapping[str, Tensor]) -> StackedVsepp:
        """Both encoders of several cells at once; see :meth:`goal_core.models.heads.Heads.stacked`."""
        return StackedVsepp(tensors)


class VectorHeads(Heads):
    """A head, or none, on either side. In `dual` one that does not change the width begins as the identity."""

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, seed: int) -> None:
        super().__init__()
        text_features = num_features if model.framework == "dual" else vocab_size
        sides = (model.vectors.image_head, num_features), (model.vectors.text_head, text_features)
        image, text = (width if kind == "none" else model.embed_dim for kind, width in sides)
        if image != text:
            raise ConfigError(f"images have {image} numbers, texts {text}; set model.embed_dim to that without a head")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            heads = [Normalized() if kind == "none" else ImageHead(width, model.embed_dim) for kind, width in sides]
        self.image, self.text = heads
        for head in heads:
            if model.framework == "dual" and isinstance(head, ImageHead) and head.fc.in_features == model.embed_dim:
                nn.init.eye_(head.fc.weight)

    def stacked(self, tensors: Mapping[str, Tensor]) -> StackedVectors:
        """Both heads of several cells at once; see :meth:`goal_core.models.heads.Heads.stacked`."""
        return StackedVectors(tensors)


class Normalized(nn.Module):
    """l2norm, and nothing to train."""

    def forward(self, vectors_BF: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map vectors (B, F) to unit vectors (B, F)."""
        return normalize(vectors_BF, dim=-1)


class StackedVectors(Heads):
    """What `VectorHeads` compute, for C cells at once, from their parameters by name, (C, ...) each."""

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
        tree, table_CVW = PrefixTree.of(tokens_BL, lengths_B), self._parameters_of_cells["text.embed.weight"]
        cells, vocabulary, _ = table_CVW.shape
        first_C1 = torch.arange(cells, device=table_CVW.device)[:, None] * vocabulary
        words_CNW = embedding(tree.words + first_C1, table_CVW.flatten(0, 1))
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        gru = (self._parameters_of_cells[f"text.rnn.{name}_l0"] for name in names)
        return normalize(stacked_gru(words_CNW, tree, *gru), dim=-1)
