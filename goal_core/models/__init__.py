"""The networks: image backbones from timm, the heads of each framework, and both together as an encoder.

`frameworks` and every room above it import this one, and `sweeps` its settings. The networks know none of them.
"""

from goal_core.models.backbones import ImageBackbone, build_backbone, check_weights, weights_id
from goal_core.models.config import BackboneConfig, BertConfig, GruConfig, ModelConfig, VseInftyConfig, XvlmConfig
from goal_core.models.heads import Encoder, Heads, Pairs, ParameterGroup, RerankingHeads, autocast, num_features
from goal_core.models.vse_infty import VseInftyHeads
from goal_core.models.vsepp import VseppHeads
from goal_core.models.xvlm import XvlmHeads

__all__ = [
    "BackboneConfig",
    "BertConfig",
    "Encoder",
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
    "autocast",
    "build_backbone",
    "check_weights",
    "num_features",
    "weights_id",
]
