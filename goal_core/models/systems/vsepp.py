"""VSE++ (Faghri et al., BMVC 2018): a pooled image vector and a GRU's last state in one joint space."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from goal_core.basics.seeding import derive_seed
from goal_core.models.config import GruConfig
from goal_core.models.heads import Heads
from goal_core.models.sequences import pack
from goal_core.models.stacked.vsepp import StackedVsepp


class ImageHead(nn.Module):
    """l2norm -> linear -> l2norm.

    Args:
        num_features: width F of the backbone's features.
        embed_dim: dimensions D of the joint space.
    """

    def __init__(self, num_features: int, embed_dim: int) -> None:
        super().__init__()
        self.fc = nn.Linear(num_features, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, features_BF: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Map backbone features (B, F), one vector per image, to unit vectors (B, D)."""
        return normalize(self.fc(normalize(features_BF, dim=-1)), dim=-1)


class GruTextEncoder(nn.Module):
    """Word embedding -> one-directional GRU -> state after the last word -> l2norm.

    Args:
        vocab_size: number of words, specials included.
        word_dim: width of the word embedding.
        embed_dim: dimensions D of the joint space and of the GRU's state.
    """

    def __init__(self, vocab_size: int, word_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, word_dim)
        self.rnn = nn.GRU(word_dim, embed_dim, batch_first=True)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Embed captions.

        Args:
            tokens_BL: int64 word ids, (B, L), padded with 0 after each caption's end.
            lengths_B: int64 number of words of each caption, (B,), on the CPU, each at least 1.

        Returns:
            Unit vectors (B, D).
        """
        packed = pack(self.embed(tokens_BL), lengths_B)
        _, state_1BD = self.rnn(packed)
        return normalize(state_1BD[0], dim=-1)


class VseppHeads(Heads):
    """Everything of VSE++ that trains while the backbone is frozen.

    Args:
        num_features: width of the backbone's features.
        vocab_size: number of words, specials included.
        text: the text encoder's settings.
        embed_dim: dimensions of the joint space.
        seed: the cell's seed; the initial weights depend on it and on nothing else, so the cells of one seed
            start equal whatever their objective.
    """

    def __init__(self, *, num_features: int, vocab_size: int, text: GruConfig, embed_dim: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = ImageHead(num_features, embed_dim)
            self.text = GruTextEncoder(vocab_size, text.word_dim, embed_dim)

    def stacked(self, tensors: Mapping[str, Tensor]) -> StackedVsepp:
        """Both encoders of several cells at once; see :meth:`goal_core.models.heads.Heads.stacked`."""
        return StackedVsepp(tensors)
