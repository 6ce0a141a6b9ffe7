"""The networks: image backbones, the heads of each framework, both together as an encoder, and the frameworks."""

from goal_sweep.goal_core.models.config import (
    BackboneConfig,
    BertConfig,
    ModelConfig,
    TextConfig,
    VectorsConfig,
    VseInftyConfig,
    XvlmConfig,
)
from goal_sweep.goal_core.models.weights import file_sha256, hub_id, weights_id
