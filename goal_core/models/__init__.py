"""The networks: image backbones from timm and the heads of each framework."""

from goal_core.models.backbones import ImageBackbone, build_backbone, check_weights, weights_id
from goal_core.models.config import BackboneConfig, GruConfig, ModelConfig
from goal_core.models.vsepp import VseppHeads

__all__ = [
    "BackboneConfig",
    "GruConfig",
    "ImageBackbone",
    "ModelConfig",
    "VseppHeads",
    "build_backbone",
    "check_weights",
    "weights_id",
]
