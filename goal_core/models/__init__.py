"""The networks: image backbones from timm, the heads of each framework, and both together as an encoder.

`frameworks` and every room above it import this one, and `sweeps` its settings. The networks know none of them.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.models.backbones import ImageBackbone, build_backbone
    from goal_sweep.goal_core.models.config import (
        BackboneConfig,
        BertConfig,
        ModelConfig,
        TextConfig,
        VectorsConfig,
        VseInftyConfig,
        XvlmConfig,
    )
    from goal_sweep.goal_core.models.heads import Encoder, Heads, Pairs, ParameterGroup, autocast, num_features
    from goal_sweep.goal_core.models.hub import (
        bert_wordpieces,
        build_dual,
        build_encoder,
        subwords_of,
        tokenizer_of,
        word_states,
    )
    from goal_sweep.goal_core.models.open_clip_towers import build_open_clip, open_clip_tokens
    from goal_sweep.goal_core.models.systems.pair_augment import PairAugment
    from goal_sweep.goal_core.models.systems.vse_infty import VseInftyHeads
    from goal_sweep.goal_core.models.systems.vsepp import VectorHeads, VseppHeads, text_head
    from goal_sweep.goal_core.models.systems.xvlm import XvlmHeads
    from goal_sweep.goal_core.models.weights import NAMED_WEIGHTS, file_sha256, hub_id, weights_id
else:
    __getattr__ = on_first_use(__name__, __file__)
