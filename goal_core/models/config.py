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


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmConfig:
    """What is X-VLM's own."""

    fusion_layer: int = 6
    """The first this many layers of BERT read the caption alone, the others look at the image too."""
    drop_path: float = 0.1
    """Stochastic depth of the image backbone: its last block is skipped with this probability, the first never."""
    temperature: float = 0.07
    """Of the similarities by which the negatives of image-text matching are drawn; it does not train."""
    objective_weight: float = 1.0
    """Weight of the objective beside image-text matching."""
    objective_scale: float = 10.0
    """The objective's sum over a batch of B counts `objective_weight * objective_scale / (2 B)`. At the `tau` of `nca`,
    `con`/`nca` then has the size of the contrastive loss that X-VLM has in its place."""
    rerank_top: int = 256
    """Evaluation scores this many of the nearest of each query anew, by image-text matching; 0 ranks by similarity."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        problems = []
        if self.fusion_layer < 1:
            problems.append(f"fusion_layer must be at least 1, got {self.fusion_layer}")
        if not 0 <= self.drop_path < 1:
            problems.append(f"drop_path must be in [0, 1), got {self.drop_path}")
        for name in ("temperature", "objective_scale"):
            if not getattr(self, name) > 0:
                problems.append(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("objective_weight", "rerank_top"):
            if getattr(self, name) < 0:
                problems.append(f"{name} must not be negative, got {getattr(self, name)}")
        if problems:
            raise ConfigError("; ".join(problems))


FrameworkName = Literal["vsepp", "vse_infty", "xvlm"]


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
    xvlm: XvlmConfig = field(default_factory=XvlmConfig)
    """Counts for that framework only."""
    init_from: str = ""
    """A checkpoint with which the first stage begins instead of first weights: a `best.safetensors` of a cell, or what
    `goal-sweep convert` made of a published one. Its tokenizer comes with it. Empty: none."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.embed_dim < 1:
            raise ConfigError(f"embed_dim must be at least 1, got {self.embed_dim}")
