"""VSE-infinity (Chen et al., CVPR 2021): sets of regions or cells and of words, pooled by learned operators."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from goal_core.models.bert import build_bert
from goal_core.models.config import ModelConfig
from goal_core.models.gpo import GeneralizedPooling
from goal_core.models.heads import Heads, ParameterGroup
from goal_core.seeding import derive_seed


class RegionMlp(nn.Module):
    """Linear -> batch normalisation -> ReLU -> linear, over every region; the zeros that pad a batch count too.

    Args:
        num_features: width F of the regions.
        embed_dim: dimensions D of the joint space; the hidden width is half of it.
    """

    def __init__(self, num_features: int, embed_dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(num_features, embed_dim // 2)
        self.norm = nn.BatchNorm1d(embed_dim // 2)
        self.second = nn.Linear(embed_dim // 2, embed_dim)

    def forward(self, regions_BRF: Tensor) -> Tensor:
        """Map regions (B, R, F) to (B, R, D)."""
        hidden = torch.relu(self.norm(self.first(regions_BRF.flatten(0, 1))))
        mapped: Tensor = self.second(hidden)
        return mapped.view(*regions_BRF.shape[:2], -1)


class SetImageEncoder(nn.Module):
    """Linear, for regions plus an MLP's residual, then the pooling operator and l2norm.

    Args:
        num_features: width F of the cells or regions.
        embed_dim: dimensions D of the joint space.
        regions: whether they are precomputed regions (MLP) and not cells of a backbone (dropped here in training).
        size_augment: see :func:`drop_cells`.
    """

    def __init__(self, num_features: int, embed_dim: int, *, regions: bool, size_augment: float) -> None:
        super().__init__()
        self.size_augment = 0.0 if regions else size_augment  # regions are dropped where they are read
        self.fc = nn.Linear(num_features, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.mlp = RegionMlp(num_features, embed_dim) if regions else None
        self.pool = GeneralizedPooling()

    def forward(self, features_BRF: Tensor, lengths_B: Tensor | None) -> Tensor:
        """Unit vectors (B, D); see :meth:`goal_core.models.heads.Heads.encode_images`."""
        if lengths_B is None:
            lengths_B = torch.full((len(features_BRF),), features_BRF.shape[1])
        if self.training and self.size_augment > 0:
            features_BRF, lengths_B = drop_cells(features_BRF, self.size_augment)
        mapped_BRD = self.fc(features_BRF)
        if self.mlp is not None:
            mapped_BRD = mapped_BRD + self.mlp(features_BRF)
        return unit(self.pool(mapped_BRD, lengths_B))


class BertTextEncoder(nn.Module):
    """BERT's last states, linear, the pooling operator over all pieces with their specials, l2norm.

    Args:
        bert: a `BertModel`.
        embed_dim: dimensions D of the joint space.
    """

    def __init__(self, bert: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.bert = bert
        self.fc = nn.Linear(bert.config.hidden_size, embed_dim)  # type: ignore[union-attr, arg-type]
        self.pool = GeneralizedPooling()

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        there_BL = (torch.arange(tokens_BL.shape[1]) < lengths_B[:, None]).to(tokens_BL.device)
        states_BLW = self.bert(input_ids=tokens_BL, attention_mask=there_BL.long()).last_hidden_state
        return unit(self.pool(self.fc(states_BLW), lengths_B))


class VseInftyHeads(Heads):
    """Everything of VSE-infinity but the image backbone.

    Args:
        model: the text encoder's and the joint space's settings.
        num_features: width of cells or regions.
        vocab_size: number of word pieces.
        regions: whether images arrive as precomputed regions.
        seed: the cell's seed; the initial weights depend on it and on nothing else.

    Source: VSE-infinity, section 3 and supplement 1.1.
    """

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, regions: bool, seed: int) -> None:
        super().__init__()
        augment = model.vse_infty.size_augment
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = SetImageEncoder(num_features, model.embed_dim, regions=regions, size_augment=augment)
            self.text = BertTextEncoder(build_bert(model.bert, vocab_size=vocab_size), model.embed_dim)

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """See :class:`SetImageEncoder`."""
        embeddings: Tensor = self.image(features, lengths_B)
        return embeddings

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """See :class:`BertTextEncoder`."""
        embeddings: Tensor = self.text(tokens_BL, lengths_B)
        return embeddings

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """The two heads at the stage's learning rate, BERT at its own."""
        bert = tuple(self.text.bert.parameters())
        inside = {id(parameter) for parameter in bert}
        heads = tuple(parameter for parameter in self.parameters() if id(parameter) not in inside)
        return [
            ParameterGroup(name="heads", parameters=heads),
            ParameterGroup(name="bert", parameters=bert, lr_scale=bert_lr_scale),
        ]


def drop_cells(features_BRF: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Drop cells of each image: with u uniform in [0, 1), each with probability rate * u, but none where u <= rate.

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
    packed = features_BRF.gather(1, order_BR.to(features_BRF.device)[:, :, None].expand(-1, -1, features_BRF.shape[2]))
    there = (torch.arange(packed.shape[1]) < lengths_B[:, None]).to(packed.device)
    return packed * there[:, :, None], lengths_B


def unit(vectors_BD: Tensor) -> Tensor:
    """Vectors of length 1 (B, D); a zero vector stays one."""
    vectors = vectors_BD.float()  # 1e-8 is nothing in half precision
    lengths_B1: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return (vectors / (lengths_B1 + 1e-8)).to(vectors_BD.dtype)
