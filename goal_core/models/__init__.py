"""The networks: image backbones from timm and the heads of each framework."""

from goal_core.models.backbones import ImageBackbone, build_backbone, check_weights, weights_id
from goal_core.models.config import BackboneConfig, BertConfig, GruConfig, ModelConfig, VseInftyConfig
from goal_core.models.heads import Heads, Pairs, ParameterGroup
from goal_core.models.vse_infty import VseInftyHeads
from goal_core.models.vsepp import VseppHeads

__all__ = [
    "BackboneConfig",
    "BertConfig",
    "GruConfig",
    "Heads",
    "ImageBackbone",
    "ModelConfig",
    "Pairs",
    "ParameterGroup",
    "VseInftyConfig",
    "VseInftyHeads",
    "VseppHeads",
    "build_backbone",
    "check_weights",
    "weights_id",
]
