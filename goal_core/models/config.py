"""What a sweep file says about the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from goal_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneConfig:
    """An image backbone of timm and where its first weights come from."""

    name: str
    """Any timm architecture that pools to one vector, such as `resnet152`, `vit_base_patch16_224`."""
    weights: str = "timm"
    """`timm`: the architecture's default pretrained weights (downloaded, or from timm's cache); `random`: drawn from
    the cell's seed; `precomputed`: the data holds the features already, and `name` is what tables call them;
    otherwise the path of a `.safetensors` or weights-only checkpoint file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GruConfig:
    """VSE++'s text encoder: word embedding and a one-directional GRU of the embedding's width."""

    word_dim: int = 300
    """Width of the word embedding."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.word_dim < 1:
            raise ConfigError(f"word_dim must be at least 1, got {self.word_dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The BERT that reads captions."""

    weights: str = "bert-base-uncased"
    """`random`: drawn from the cell's seed; a folder with `config.json`, `vocab.txt` and weights; otherwise a model's
    name on the Hugging Face hub (downloaded, or from its cache)."""
    layers: int = 12
    """Transformer layers; counts for `random` weights only, as do the next two."""
    width: int = 768
    """Width of the states."""
    heads: int = 12
    """Attention heads."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.layers, self.width, self.heads) < 1 or self.width % self.heads:
            raise ConfigError(
                f"layers, width and heads must be at least 1 and heads divide width; "
                f"got layers={self.layers}, width={self.width}, heads={self.heads}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class VseInftyConfig:
    """What is VSE-infinity's own."""

    size_augment: float = 0.2
    """Share of regions dropped and of words masked, replaced or dropped in training; bound of the share of grid
    cells dropped. 0 leaves everything as it is."""

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.size_augment < 1:
            raise ConfigError(f"size_augment must be in [0, 1), got {self.size_augment}")


FrameworkName = Literal["vsepp", "vse_infty"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model: the framework, its image backbone, its text encoder and the joint space."""

    framework: FrameworkName = "vsepp"
    backbone: BackboneConfig
    text: GruConfig = field(default_factory=GruConfig)
    """VSE++'s text encoder."""
    embed_dim: int = 1024
    """Dimensions of the joint embedding space (and of the GRU's state)."""
    bert: BertConfig = field(default_factory=BertConfig)
    """The other frameworks' text encoder."""
    vse_infty: VseInftyConfig = field(default_factory=VseInftyConfig)
    """Counts for that framework only."""
    init_from: str = ""
    """A checkpoint with which the first stage begins instead of first weights: a `best.safetensors` of a cell, or what
    `goal-sweep convert` made of a published one. Its tokenizer comes with it. Empty: none."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.embed_dim < 1:
            raise ConfigError(f"embed_dim must be at least 1, got {self.embed_dim}")
