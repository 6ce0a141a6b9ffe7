"""BERT in two halves, as X-VLM has it: the first layers read the caption, the others look at the image too."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from goal_core.errors import ConfigError
from goal_core.models.bert import build_bert
from goal_core.models.config import BertConfig


class CrossEncoder(nn.Module):
    """The upper layers of a BERT, each with cross-attention to an image's tokens.

    Args:
        encoder: a `BertEncoder` whose layers have cross-attention.
        config: its configuration.
    """

    def __init__(self, encoder: nn.Module, config: Any) -> None:
        super().__init__()
        self.encoder, self._config = encoder, config

    def forward(self, states_BLW: Tensor, there_BL: Tensor, image_BRF: Tensor) -> Tensor:
        """Caption states that know the image.

        Args:
            states_BLW: the text half's last states, (B, L, W).
            there_BL: 1 where there is a word piece, 0 in the padding, (B, L) int64.
            image_BRF: tokens of each caption's image, (B, R, F).

        Returns:
            (B, L, W).
        """
        from transformers.masking_utils import create_bidirectional_mask

        mask = create_bidirectional_mask(config=self._config, inputs_embeds=states_BLW, attention_mask=there_BL)
        states: Tensor = self.encoder(
            states_BLW, attention_mask=mask, encoder_hidden_states=image_BRF
        ).last_hidden_state
        return states


def split_bert(
    config: BertConfig, *, vocab_size: int, fusion_layer: int, image_width: int
) -> tuple[nn.Module, CrossEncoder]:
    """A BERT cut in two; what its weights do not hold (the cross-attention) comes from torch's global generator.

    Args:
        config: sizes and weights of the whole.
        vocab_size: number of word pieces.
        fusion_layer: layers of the lower half.
        image_width: width F of the image tokens.

    Returns:
        A `BertModel` of the lower layers, and the upper layers.

    Raises:
        ConfigError: no layer is left for one of the halves.
        WeightsError: see :func:`~goal_core.models.bert.build_bert`.
    """
    from transformers import BertModel

    text: Any = build_bert(config, vocab_size=vocab_size)
    layers = text.config.num_hidden_layers
    if not 0 < fusion_layer < layers:
        raise ConfigError(
            f"fusion_layer must leave a layer of BERT's {layers} to look at the image, got {fusion_layer}"
        )
    sizes = deepcopy(text.config)
    sizes.num_hidden_layers, sizes.vocab_size = layers - fusion_layer, 1  # its own embeddings are thrown away
    sizes.is_decoder = sizes.add_cross_attention = True
    upper: Any = BertModel(sizes, add_pooling_layer=False)
    for own, given in zip(upper.encoder.layer, text.encoder.layer[fusion_layer:], strict=True):
        # The library's cross-attention takes images as wide as captions only.
        for name in ("key", "value"):
            fresh = nn.Linear(image_width, sizes.hidden_size)
            nn.init.normal_(fresh.weight, std=sizes.initializer_range)
            nn.init.zeros_(fresh.bias)
            setattr(own.crossattention.self, name, fresh)
        own.load_state_dict(given.state_dict(), strict=False)
        own.attention.self.is_causal = False  # a caption is read whole, in the upper layers too
    text.encoder.layer = text.encoder.layer[:fusion_layer]
    text.config.num_hidden_layers = fusion_layer
    return text, CrossEncoder(upper.encoder, sizes)
