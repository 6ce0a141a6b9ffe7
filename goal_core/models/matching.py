"""Image-text matching as in X-VLM: whether a caption describes an image.

The upper half of a BERT sees both. Negative pairs are drawn from the batch, similar ones more often.

Source: ALBEF (Li et al., NeurIPS 2021), section 3.2, as X-VLM (Zeng et al., ICML 2022) uses it.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from goal_core.basics.errors import ConfigError
from goal_core.models.bert import build_bert
from goal_core.models.config import BertConfig

NO_NEGATIVE = -100
"""Label of a pair that is ignored, by the convention of torch's cross entropy."""
_FLOOR = 1e-5
"""Added to every probability, so that any negative can be drawn."""


class CrossEncoder(nn.Module):
    """The upper layers of a BERT, each with cross-attention to an image's tokens.

    Args:
        encoder: a `BertEncoder` whose layers have cross-attention.
        config: its configuration.
    """

    def __init__(self, encoder: nn.Module, config: Any) -> None:
        super().__init__()
        self.encoder, self._config = encoder, config

    def forward(self, states_BLW: Tensor, mask: Tensor, image_BRF: Tensor) -> Tensor:
        """Caption states that depend on the image.

        Args:
            states_BLW: the text half's last states, (B, L, W).
            mask: which states are word pieces and no padding, (B, 1, 1, L) bool.
            image_BRF: tokens of each caption's image, (B, R, F).

        Returns:
            (B, L, W).
        """
        states: Tensor = self.encoder(
            states_BLW, attention_mask=mask, encoder_hidden_states=image_BRF
        ).last_hidden_state
        return states


def split_bert(
    config: BertConfig, *, vocab_size: int, fusion_layer: int, image_width: int
) -> tuple[nn.Module, CrossEncoder]:
    """A BERT split in two; the cross-attention, which no file contains, is drawn from torch's global generator.

    Args:
        config: sizes and weights of the whole BERT.
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
            f"fusion_layer must leave at least one of BERT's {layers} layers to see the image, got {fusion_layer}"
        )
    sizes = deepcopy(text.config)
    sizes.num_hidden_layers, sizes.vocab_size = layers - fusion_layer, 1  # its own embeddings are discarded
    sizes.is_decoder = sizes.add_cross_attention = True
    upper: Any = BertModel(sizes, add_pooling_layer=False)
    for own, given in zip(upper.encoder.layer, text.encoder.layer[fusion_layer:], strict=True):
        # The library's cross-attention accepts only images as wide as captions.
        for name in ("key", "value"):
            fresh = nn.Linear(image_width, sizes.hidden_size)
            nn.init.normal_(fresh.weight, std=sizes.initializer_range)
            nn.init.zeros_(fresh.bias)
            setattr(own.crossattention.self, name, fresh)
        own.load_state_dict(given.state_dict(), strict=False)
        own.attention.self.is_causal = False  # captions are read in both directions, in the upper layers too
    text.encoder.layer = text.encoder.layer[:fusion_layer]
    text.config.num_hidden_layers = fusion_layer
    return text, CrossEncoder(upper.encoder, sizes)


@torch.no_grad()
def draw_negatives(similarity_BB: Tensor, ids_B: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    """Draw one negative for each row from the softmax of its similarities, pairs of the row's own image excluded.

    Draws from torch's global generator of the similarities' device.

    Args:
        similarity_BB: similarity of each row's query to the candidates, (B, B), any float.
        ids_B: equal for pairs of the same image, (B,) int64.
        temperature: of the softmax, scalar > 0.

    Returns:
        The candidate drawn for each row, (B,) int64; and whether the row has any negative, (B,) bool. Where it has
        none, the candidate is the row itself.
    """
    same_BB = ids_B[:, None] == ids_B[None, :]
    chances_BB = (torch.softmax(similarity_BB.float() / temperature, dim=1) + _FLOOR).masked_fill(same_BB, 0)
    any_B = ~same_BB.all(dim=1)
    chances_BB = torch.where(any_B[:, None], chances_BB, torch.eye(len(ids_B), device=ids_B.device))
    # What `multinomial` draws, without its check of the numbers, which waits for the device.
    return (chances_BB / torch.empty_like(chances_BB).exponential_()).argmax(dim=1), any_B


def matching_labels(any_image_B: Tensor, any_text_B: Tensor) -> Tensor:
    """Labels of B positive pairs, B with another image and B with another caption, (3 B,) int64: 1 match, 0 no match.

    Args:
        any_image_B: whether each caption has a negative image, (B,) bool.
        any_text_B: whether each image has a negative caption, (B,) bool.
    """
    negatives = torch.cat((any_image_B, any_text_B))
    right = torch.ones_like(any_image_B, dtype=torch.int64)
    return torch.cat((right, torch.where(negatives, 0, NO_NEGATIVE)))
