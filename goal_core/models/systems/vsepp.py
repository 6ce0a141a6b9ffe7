"""VSE++ (Faghri et al., BMVC 2018): a pooled image vector and a GRU's last state in one joint space."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize
from torch.nn.utils.rnn import PackedSequence

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
        if tokens_BL.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            return normalize(last_states(self.rnn, packed), dim=-1)
        _, state_1BD = self.rnn(packed)
        return normalize(state_1BD[0], dim=-1)


def last_states(rnn: nn.GRU, packed: PackedSequence) -> Tensor:
    """What ``rnn(packed)`` gives as its last states, bit for bit, gradients too, in less time on a CPU.

    For each time step, torch's own backward pass writes zeros for all time steps and adds them up; splitting the packed
    sequence at once makes that a single copy. The operations and their order are torch's, so the numbers are the same.

    Args:
        rnn: one layer in one direction.
        packed: B sequences.

    Returns:
        States (B, D) in the order of the sequences before packing.
    """
    weight_ih, weight_hh, bias_ih, bias_hh = rnn.all_weights[0]
    sizes = packed.batch_sizes.tolist()
    hidden, ended = packed.data.new_zeros(sizes[0], rnn.hidden_size), []
    for step in torch.split(linear(packed.data, weight_ih, bias_ih), sizes):
        if len(step) < len(hidden):  # sequences end, the shortest, which come last, first
            hidden, rest = torch.split(hidden, [len(step), len(hidden) - len(step)])
            ended.append(rest)
        reset_in, update_in, new_in = step.chunk(3, 1)
        reset, update, new = linear(hidden, weight_hh, bias_hh).unsafe_chunk(3, 1)
        reset.add_(reset_in).sigmoid_()
        update.add_(update_in).sigmoid_()
        new = (new_in + new.mul_(reset)).tanh_()
        hidden = (hidden - new).mul_(update).add_(new)
    return torch.cat([hidden, *reversed(ended)])[packed.unsorted_indices]


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
