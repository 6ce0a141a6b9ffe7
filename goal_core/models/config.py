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
    the cell's seed; otherwise the path of a `.safetensors` or weights-only checkpoint file."""


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
class ModelConfig:
    """One model: the framework, its image backbone, its text encoder and the joint space."""

    framework: Literal["vsepp"] = "vsepp"
    backbone: BackboneConfig
    text: GruConfig = field(default_factory=GruConfig)
    embed_dim: int = 1024
    """Dimensions of the joint embedding space (and of the GRU's state)."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        if self.embed_dim < 1:
            raise ConfigError(f"embed_dim must be at least 1, got {self.embed_dim}")
