"""BERT from the transformers library, and its word pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from goal_core.basics.errors import DataError, WeightsError, first_line
from goal_core.data.text import Wordpieces
from goal_core.models.config import BertConfig


def build_bert(config: BertConfig, *, vocab_size: int) -> nn.Module:
    """A `BertModel` without pooler; `random` weights are drawn from torch's global generator.

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


def bert_wordpieces(config: BertConfig, captions: Sequence[str], min_word_count: int) -> Wordpieces:
    """The word pieces of a BERT; for `random` weights, the words of the captions.

    Args:
        config: sizes and weights.
        captions: the train and val captions.
        min_word_count: for `random` weights; rarer words become `[UNK]`.

    Raises:
        WeightsError: the vocabulary cannot be found.
        DataError: it is not a vocabulary of BERT.
    """
    if config.weights == "random":
        return Wordpieces.of_captions(captions, min_word_count)
    settings = _file(config, "tokenizer_config.json", needed=False)
    lowercase = True
    if settings is not None:
        try:
            lowercase = bool(json.loads(settings.read_text(encoding="utf-8")).get("do_lower_case", True))
        except (OSError, ValueError, AttributeError) as error:
            raise DataError(f"cannot read {settings}: {error}") from error
    vocabulary = _file(config, "vocab.txt", needed=True)
    assert vocabulary is not None
    return Wordpieces.from_file(vocabulary, lowercase=lowercase)


def _file(config: BertConfig, name: str, *, needed: bool) -> Path | None:
    from transformers.utils import cached_file

    options: dict[str, Any] = {"_raise_exceptions_for_missing_entries": needed}
    try:
        found = cached_file(config.weights, name, **options)
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot find {name} of BERT {config.weights!r}: {first_line(error)}") from error
    return Path(found) if found is not None else None
