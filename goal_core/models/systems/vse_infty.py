"""VSE-infinity (Chen et al., CVPR 2021): sets of regions or cells and sets of words, pooled by a learned operator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from goal_core.basics.seeding import derive_seed
from goal_core.models.bert import build_bert
from goal_core.models.config import ModelConfig
from goal_core.models.heads import Heads, ParameterGroup, encoder_apart
from goal_core.models.sequences import attention_mask, length_mask
from goal_core.models.sets import GeneralizedPooling, drop_cells, unit_vectors


class RegionMlp(nn.Module):
    """Linear -> batch normalisation -> ReLU -> linear, for every region, padding included.

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
    """Linear (for regions, plus the output of an MLP), then the pooling operator and l2norm.

    Args:
        num_features: width F of the cells or regions.
        embed_dim: dimensions D of the joint space.
        regions: whether images are precomputed regions, which pass the MLP, rather than cells of a backbone, some of
            which are dropped here in training.
        size_augment: see :func:`drop_cells`.
    """

    def __init__(self, num_features: int, embed_dim: int, *, regions: bool, size_augment: float) -> None:
        super().__init__()
        self.size_augment = 0.0 if regions else size_augment  # regions are dropped when they are loaded
        self.fc = nn.Linear(num_features, embed_dim)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)
        self.mlp = RegionMlp(num_features, embed_dim) if regions else None
        self.pool = GeneralizedPooling()

    def forward(self, features_BRF: Tensor, lengths_B: Tensor | None) -> Tensor:
        """Unit vectors (B, D) of cells or regions (B, R, F); see :meth:`goal_core.models.heads.Heads.encode_images`."""
        if lengths_B is None:
            lengths_B = torch.full((len(features_BRF),), features_BRF.shape[1])
        if self.training and self.size_augment > 0:
            features_BRF, lengths_B = drop_cells(features_BRF, self.size_augment)
        mapped_BRD = self.fc(features_BRF)
        if self.mlp is not None:
            mapped_BRD = mapped_BRD + self.mlp(features_BRF)
        return unit_vectors(self.pool(mapped_BRD, lengths_B))


class BertTextEncoder(nn.Module):
    """BERT's last states, linear, the pooling operator over all word pieces including the special ones, l2norm.

    Args:
        bert: a `BertModel`, or another text encoder of its library.
        embed_dim: dimensions D of the joint space.
    """

    def __init__(self, bert: nn.Module, embed_dim: int) -> None:
        super().__init__()
        self.bert = bert
        self.fc = nn.Linear(bert.config.hidden_size, embed_dim)  # type: ignore[union-attr, arg-type]  # a BertModel has it
        self.pool = GeneralizedPooling()

    def forward(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        of_kind = attention_mask if self.bert.config.model_type == "bert" else length_mask  # type: ignore[union-attr]
        mask = of_kind(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        states_BLW = self.bert(input_ids=tokens_BL, attention_mask=mask).last_hidden_state
        return unit_vectors(self.pool(self.fc(states_BLW), lengths_B))


class VseInftyHeads(Heads):
    """Everything of VSE-infinity except the image backbone.

    Args:
        model: settings of the text encoder and of the joint space.
        num_features: width of cells or regions.
        vocab_size: number of word pieces.
        regions: whether images arrive as precomputed regions.
        seed: the cell's seed; the initial weights depend on it and on nothing else.

    Source: VSE-infinity, section 3 and supplement 1.1.
    """

    image: SetImageEncoder
    text: BertTextEncoder

    def __init__(self, model: ModelConfig, *, num_features: int, vocab_size: int, regions: bool, seed: int) -> None:
        super().__init__()
        augment = model.vse_infty.size_augment
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "init"))
            self.image = SetImageEncoder(num_features, model.embed_dim, regions=regions, size_augment=augment)
            self.text = BertTextEncoder(build_bert(model.bert, vocab_size=vocab_size), model.embed_dim)

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """The heads with the stage's learning rate, BERT with its own."""
        return encoder_apart(self, self.text.bert, bert_lr_scale)
