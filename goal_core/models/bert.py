"""BERT from the transformers library, whole or in two halves, and its word pieces."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from goal_core.basics.errors import ConfigError, WeightsError, first_line
from goal_core.data.text import Subwords, Wordpieces
from goal_core.models.config import BertConfig
from goal_core.models.hub import build_encoder, file_of, is_bert, settings_of, subwords_of


def build_bert(config: BertConfig, *, vocab_size: int) -> nn.Module:
    """A `BertModel` without pooler, or another text encoder; `random` weights are drawn from torch's global generator.

    Args:
        config: sizes and weights.
        vocab_size: number of word pieces.

    Raises:
        WeightsError: the weights cannot be loaded, or embed too few word pieces.
    """
    from transformers import BertConfig as Sizes  # two seconds of import that `status` and `plan` should not pay
    from transformers import BertModel

    if config.weights == "random":
        sizes = Sizes(
            vocab_size=vocab_size,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=4 * config.width,
        )
        fresh: nn.Module = BertModel(sizes, add_pooling_layer=False)
        return fresh
    if not is_bert(config.weights):
        return build_encoder(config.weights)
    try:
        model: nn.Module = BertModel.from_pretrained(
            config.weights, add_pooling_layer=False, use_safetensors=True, dtype="float32"
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise WeightsError(f"cannot load BERT from {config.weights!r}: {first_line(error)}") from error
    rows: Any = model.config.vocab_size  # type: ignore[union-attr]  # a BertModel has it
    if rows < vocab_size:
        raise WeightsError(f"BERT {config.weights!r} embeds {rows} word pieces, but its vocabulary has {vocab_size}")
    return model


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
        WeightsError: see :func:`build_bert`.
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


def bert_wordpieces(config: BertConfig, captions: Iterable[str], min_word_count: int) -> Wordpieces | Subwords:
    """The word pieces of a BERT; for `random` weights, the words of the captions; of another encoder its own ids.

    Args:
        config: sizes and weights.
        captions: the train and val captions.
        min_word_count: for `random` weights; rarer words become `[UNK]`.

    Raises:
        WeightsError: the vocabulary cannot be found.
        DataError: it is not a vocabulary of BERT, or its settings cannot be read.
    """
    if config.weights == "random":
        return Wordpieces.of_captions(captions, min_word_count)
    if not is_bert(config.weights):
        return subwords_of(config.weights)
    vocabulary = file_of(config.weights, "vocab.txt")
    if vocabulary is None:
        raise WeightsError(f"cannot find vocab.txt of BERT {config.weights!r}")
    lowercase = settings_of(config.weights, "tokenizer_config.json").get("do_lower_case", True)
    return Wordpieces.from_file(vocabulary, lowercase=bool(lowercase))
