"""The model settings of a sweep file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from goal_core.basics.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneConfig:
    """An image backbone of timm and the source of its initial weights."""

    name: str
    """Any timm architecture that pools to one vector, such as `resnet152`, `vit_base_patch16_224`."""
    weights: str = "timm"
    """`timm`: the architecture's default pretrained weights (downloaded, or from timm's cache); `random`: drawn from
    the cell's seed; `precomputed`: the data holds the features already, and tables show them under `name`;
    otherwise the path of a `.safetensors` or weights-only checkpoint file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GruConfig:
    """VSE++'s text encoder: word embedding and a one-directional GRU with `embed_dim` units."""

    word_dim: int = 300
    """Width of the word embedding."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.word_dim < 1:
            raise ConfigError(f"word_dim must be at least 1, got {self.word_dim}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """The BERT that encodes captions."""

    weights: str = "bert-base-uncased"
    """`random`: drawn from the cell's seed; a folder with `config.json`, `vocab.txt` and weights; otherwise a model's
    name on the Hugging Face hub (downloaded, or from its cache)."""
    layers: int = 12
    """Transformer layers; used with `random` weights only, as are the next two."""
    width: int = 768
    """Width of the hidden states."""
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
    """Settings of VSE-infinity alone."""

    size_augment: float = 0.2
    """Share of regions dropped and of words masked, replaced or dropped in training; upper bound of the share of grid
    cells dropped. 0 changes nothing."""

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.size_augment < 1:
            raise ConfigError(f"size_augment must be in [0, 1), got {self.size_augment}")


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmConfig:
    """Settings of X-VLM alone."""

    fusion_layer: int = 6
    """Number of BERT's first layers that see only the caption; the others see the image too."""
    drop_path: float = 0.1
    """Stochastic depth of the image backbone: probability of skipping the last block, falling to 0 at the first."""
    temperature: float = 0.07
    """Divides the similarities by which the negatives of image-text matching are drawn, and those in the contrastive
    loss to which the objective is scaled; it is not trained."""
    objective_weight: float = 1.0
    """Size of the objective's gradient on the embeddings when it begins, relative to that of the contrastive loss that
    it replaces; 0 leaves image-text matching alone."""
    objective_scale: float | Literal["itc"] = "itc"
    """The objective's sum over a batch of B is multiplied by `objective_weight * objective_scale / (2 B)`. `itc`: each
    objective has a scale of its own, which is measured (docs/frameworks.md); a number serves all objectives alike."""
    rerank_top: int = 256
    """Evaluation re-ranks this many nearest candidates of each query by image-text matching; 0 ranks by similarity."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        problems = []
        if self.fusion_layer < 1:
            problems.append(f"fusion_layer must be at least 1, got {self.fusion_layer}")
        if not 0 <= self.drop_path < 1:
            problems.append(f"drop_path must be in [0, 1), got {self.drop_path}")
        if not self.temperature > 0:
            problems.append(f"temperature must be above 0, got {self.temperature}")
        if self.objective_scale != "itc" and not self.objective_scale > 0:
            problems.append(f"objective_scale must be above 0, or itc, got {self.objective_scale}")
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
    """Text encoder of VSE++."""
    embed_dim: int = 1024
    """Dimensions of the joint embedding space, and of the GRU's state."""
    bert: BertConfig = field(default_factory=BertConfig)
    """Text encoder of the other frameworks."""
    vse_infty: VseInftyConfig = field(default_factory=VseInftyConfig)
    """Used by that framework only."""
    xvlm: XvlmConfig = field(default_factory=XvlmConfig)
    """Used by that framework only."""
    init_from: str = ""
    """A checkpoint from which the first stage starts: the `best.safetensors` of a cell, or what `goal-sweep convert`
    made of a published checkpoint. Its tokenizer comes with it. Empty: none."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.embed_dim < 1:
            raise ConfigError(f"embed_dim must be at least 1, got {self.embed_dim}")
