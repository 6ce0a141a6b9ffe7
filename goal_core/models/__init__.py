"""The networks: image backbones from timm and the heads of each framework."""

from goal_core.models.backbones import ImageBackbone, build_backbone, check_weights, weights_id
from goal_core.models.config import BackboneConfig, BertConfig, GruConfig, ModelConfig, VseInftyConfig, XvlmConfig
from goal_core.models.heads import Heads, Pairs, ParameterGroup, RerankingHeads
from goal_core.models.vse_infty import VseInftyHeads
from goal_core.models.vsepp import VseppHeads
from goal_core.models.xvlm import XvlmHeads

__all__ = [
    "BackboneConfig",
    "BertConfig",
    "GruConfig",
    "Heads",
    "ImageBackbone",
    "ModelConfig",
    "Pairs",
    "ParameterGroup",
    "RerankingHeads",
    "VseInftyConfig",
    "VseInftyHeads",
    "VseppHeads",
    "XvlmConfig",
    "XvlmHeads",
    "build_backbone",
    "check_weights",
    "weights_id",
]
