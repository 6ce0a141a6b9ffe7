"""VSE-infinity (Chen et al., CVPR 2021): sets of regions or cells and sets of words, pooled by a learned operator.

Its size augmentation leaves out regions and words in training (section 3.3). Every random draw of it belongs to one
(seed, epoch, caption), so all cells see the same augmented pairs, also after a resume.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from goal_sweep.goal_core.basics.devices import send
from goal_sweep.goal_core.basics.numerics import derive_seed
from goal_sweep.goal_core.data.text import Wordpieces
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.heads import Heads, length_mask
from goal_sweep.goal_core.models.hub import build_bert, states_width, word_states

MASKED, REPLACED = 0.5, 0.6
"""Of the words drawn, half are masked and a tenth replaced; the others are dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairAugment:
    """Augments image-caption pairs of precomputed regions and word pieces; a `goal_core.data.batches.Augment`."""

    rate: float
    """Share of regions and of words that are drawn, in [0, 1)."""
    wordpieces: Wordpieces
    seed: int
    """The cells' seed."""

    def keep_regions(self, epoch: int, caption: int, num_regions: int) -> NDArray[np.bool_]:
        """Which of an image's regions a pair keeps, (num_regions,) bool; at least one."""
        draws = _uniform(num_regions, self.seed, "regions", epoch, caption)
        kept = draws >= self.rate
        if not kept.any():
            kept[np.argmax(draws)] = True
        return kept

    def caption_ids(self, epoch: int, caption: int, words: Sequence[Sequence[int]]) -> list[int]:
        """Ids of an augmented caption, whose words are given as pieces; `[CLS]` and `[SEP]` included."""
        mask, first, last = map(self.wordpieces.pieces.index, ("[MASK]", "[CLS]", "[SEP]"))
        draws = _uniform(2 * len(words), self.seed, "words", epoch, caption)
        fresh = iter(_uniform(sum(map(len, words)), self.seed, "pieces", epoch, caption))
        ids = [first]
        for word, drawn, kind in zip(words, draws[: len(words)], draws[len(words) :], strict=True):
            if drawn >= self.rate:
                ids += word
            elif kind < MASKED:
                ids += [mask] * len(word)
            elif kind < REPLACED:
                ids += [int(next(fresh) * len(self.wordpieces)) for _ in word]
        return [*ids, last]

    def captions(
        self, epoch: int, captions: NDArray[np.int64], ids_of: Callable[[int], list[int]]
    ) -> tuple[Tensor, Tensor]:
        """Augmented captions of a batch: ids (B, L) int64, padded with 0, and their lengths (B,) int64."""
        words = ((caption, self.wordpieces.words(ids_of(caption))) for caption in captions.tolist())
        rows = [torch.tensor(self.caption_ids(epoch, caption, own)) for caption, own in words]
        return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    def regions(
        self, epoch: int, captions: NDArray[np.int64], regions_BRF: NDArray[np.float32]
    ) -> tuple[Tensor, Tensor]:
        """Kept regions of a batch, moved to the front, padded with zeros (B, R', F), and how many each keeps (B,)."""
        masks = (self.keep_regions(epoch, caption, regions_BRF.shape[1]) for caption in captions.tolist())
        kept = [torch.from_numpy(regions[mask]) for regions, mask in zip(regions_BRF, masks, strict=True)]
        return pad_sequence(kept, batch_first=True), torch.tensor([len(regions) for regions in kept])


def _uniform(count: int, seed: int, *purpose: object) -> NDArray[np.float64]:
    """Uniform doubles in [0, 1), which numpy keeps the same from version to version."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *purpose))).random(count)


ABSENT: Final = -1e4
"""Score of ranks beyond a set's size, and value that makes its padding sort last."""
TEMPERATURE: Final = 0.1


class GeneralizedPooling(nn.Module):
    """Sorts each dimension over a set's elements and sums the ranks, weighted by a small GRU.

    Source: VSE-infinity, section 3.2.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.score = nn.Linear(width, 1, bias=False)
        self._table: Tensor | None = None

    def tabulate(self, largest: int) -> None:
        """Compute the weights of all sizes up to the largest once, for an exported program, which packs no sequences.

        With 0 they are computed anew each time, as at first.
        """
        self._table = None
        if largest:
            with torch.no_grad():  # one more: a slice that may be the whole table would fix a program's sizes
                self._table = self.weights(torch.arange(1, largest + 2))

    def weights(self, lengths_B: Tensor) -> Tensor:
        """Weight of each rank for sets of these sizes (B,), at least 1; each row sums to 1 over its own ranks.

        Returns:
            (B, N), N being the largest size; once :meth:`tabulate` was called, above its largest.
        """
        if self._table is not None:
            return self._table[lengths_B - 1]
        # The weights depend on the size alone: the different sizes, the largest first, and which of them each set has.
        rising_S, place_B = torch.unique(lengths_B, return_inverse=True)
        sizes_S, which_B = rising_S.flip(0), len(rising_S) - 1 - place_B
        device = self.score.weight.device
        longest = int(sizes_S[0])
        codes_NW = send(position_codes(longest, self.width), device)
        mask_SN = length_mask(sizes_S, longest, device)
        packed = pack_padded_sequence(codes_NW * mask_SN[:, :, None], sizes_S, batch_first=True)
        states, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        both_SNW = (states[:, :, : self.width] + states[:, :, self.width :]) / 2
        scores_SN = self.score(both_SNW)[:, :, 0].masked_fill(~mask_SN, ABSENT)
        return torch.softmax(scores_SN / TEMPERATURE, dim=1)[send(which_B, device)]

    def forward(self, features_BND: Tensor, lengths_B: Tensor) -> Tensor:
        """Pool sets (B, N, D) of sizes (B,), on the CPU, each in 1..N, to (B, D); rows past a size are ignored."""
        weights_BN = self.weights(lengths_B)[:, : features_BND.shape[1]]
        features_BND = features_BND[:, : weights_BN.shape[1]]
        mask_BN1 = length_mask(lengths_B, features_BND.shape[1], features_BND.device)[:, :, None]
        ranked_BND = features_BND.masked_fill(~mask_BN1, ABSENT).sort(dim=1, descending=True)[0]
        return (ranked_BND.masked_fill(~mask_BN1, 0) * weights_BN[:, :, None]).sum(dim=1)


def region_mlp(num_features: int, embed_dim: int) -> nn.Sequential:
    """Maps all regions of a batch, padding included, from (N, F) to (N, D); its hidden width is D / 2."""
    half = embed_dim // 2
    first, norm, second = nn.Linear(num_features, half), nn.BatchNorm1d(half), nn.Linear(half, embed_dim)
    return nn.Sequential(OrderedDict(first=first, norm=norm, relu=nn.ReLU(), second=second))


class SetImageEncoder(nn.Module):
    """Linear (for regions, plus the output of an MLP), then the pooling operator and l2norm.

    Precomputed regions pass the MLP. Of a backbone's cells some are dropped here in training.
    """

    def __init__(self, num_features: int, embed_dim: int, *, regions: bool, size_augment: float) -> None:
        super().__init__()
        self.size_augment = 0.0 if regions else size_augment  # regions are dropped when they are loaded
        self.fc = nn.Linear(num_features, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.mlp = region_mlp(num_features, embed_dim) if regions else None
        self.pool = GeneralizedPooling()

    def forward(self, features_BRF: Tensor, lengths_B: Tensor | None) -> Tensor:
        """Unit vectors (B, D) of cells or regions (B, R, F); see :meth:`goal_core.models.heads.Heads.encode_images`."""
        if lengths_B is None:
            lengths_B = torch.full(features_BRF.shape[:1], features_BRF.shape[1])
        if self.training and self.size_augment > 0:
            features_BRF, lengths_B = drop_cells(features_BRF, self.size_augment)
        mapped_BRD = self.fc(features_BRF)
        if self.mlp is not None:
            mapped_BRD = mapped_BRD + self.mlp(features_BRF.flatten(0, 1)).view(mapped_BRD.shape)
        return unit_vectors(self.pool(mapped_BRD, lengths_B))


class BertTextEncoder(nn.Module):
    """BERT's last states, linear, the pooling operator over all word pieces including the special ones, l2norm."""

    def __init__(self, bert: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.bert = bert
        self.fc = nn.Linear(states_width(bert), embed_dim)
        self.pool = GeneralizedPooling()

    @property
    def encoder(self) -> nn.Module:
        """BERT, which has a learning rate of its own."""
        return self.bert

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        return unit_vectors(self.pool(self.fc(word_states(self.bert, tokens_BL, lengths_B)), lengths_B))


class VseInftyHeads(Heads):
    """Everything of VSE-infinity except the image backbone.

    Source: VSE-infinity, section 3 and supplement 1.1.
    """

    image: SetImageEncoder
    text: BertTextEncoder

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, seed: int) -> None:
        super().__init__()
        regions, augment = model.backbone.weights == "precomputed", model.vse_infty.size_augment
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = SetImageEncoder(num_features, model.embed_dim, regions=regions, size_augment=augment)
            self.text = BertTextEncoder(build_bert(model.bert, vocab_size=vocab_size), model.embed_dim)


def position_codes(count: int, width: int) -> Tensor:
    """Sine and cosine codes of positions 0..count-1, interleaved, (count, width) float32."""
    angles = torch.arange(count)[:, None] * torch.exp(torch.arange(0, width, 2) * -(math.log(10000.0) / width))
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
    lengths_B1: Tensor = torch.linalg.vector_norm(vectors_BD, dim=-1, keepdim=True)
    return vectors_BD / (lengths_B1 + 1e-8)
