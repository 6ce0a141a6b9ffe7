"""VSE++ (Faghri et al., BMVC 2018): a pooled image vector and a GRU's last state in one joint space."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from goal_core.basics.seeding import derive_seed
from goal_core.models.config import TextConfig
from goal_core.models.heads import Heads, ParameterGroup, encoder_apart
from goal_core.models.hub import build_encoder
from goal_core.models.sequences import length_mask, pack
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


class StatesTextEncoder(nn.Module):
    """A pretrained encoder -> mean of its last states -> linear -> l2norm.

    Args:
        encoder: a model of the transformers library that reads ids.
        embed_dim: dimensions D of the joint space.
    """

    def __init__(self, encoder: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.fc = nn.Linear(encoder.config.hidden_size, embed_dim)  # type: ignore[union-attr, arg-type]  # it has it

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        mask_BL = length_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        states_BLW = self.encoder(input_ids=tokens_BL, attention_mask=mask_BL.long()).last_hidden_state
        total_BW = (states_BLW * mask_BL[:, :, None]).sum(1)
        return normalize(self.fc(total_BW / mask_BL.sum(1, keepdim=True)), dim=-1)


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

    def __init__(self, *, num_features: int, vocab_size: int, text: TextConfig, embed_dim: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = ImageHead(num_features, embed_dim)
            self.text = (
                StatesTextEncoder(build_encoder(text.encoder), embed_dim)
                if text.encoder
                else GruTextEncoder(vocab_size, text.word_dim, embed_dim)
            )

    def stacked(self, tensors: Mapping[str, Tensor]) -> StackedVsepp:
        """Both encoders of several cells at once; see :meth:`goal_core.models.heads.Heads.stacked`."""
        return StackedVsepp(tensors)

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """The heads with the stage's learning rate, a pretrained text encoder with its own."""
        if not isinstance(self.text, StatesTextEncoder):
            return super().parameter_groups(bert_lr_scale)
        return encoder_apart(self, self.text.encoder, bert_lr_scale)
