"""Pretrained models of the transformers library by their name on the hub or their folder: text encoders and towers."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from goal_core.basics.errors import ConfigError, DataError, WeightsError, first_line
from goal_core.data.text import Subwords
from goal_core.models.backbones import CLIP_MEAN, CLIP_STD, ImageBackbone
from goal_core.models.config import BackboneConfig
from goal_core.models.sequences import length_mask


class Towers(nn.Module):
    """Both towers of a model such as CLIP or SigLIP, with their projections.

    Args:
        model: has `get_image_features` and `get_text_features`.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, text, size = model, model.config.text_config, model.config.vision_config.image_size
        # SigLIP reads the last state of captions that are padded to the full length, with nothing masked.
        self._pad: int | None = text.pad_token_id if model.config.model_type.startswith("siglip") else None
        self._longest: int = text.max_position_embeddings
        # CLIP reads the state of a caption's end, which sees only what comes before; a mask would wait for the device.
        self._masks = model.config.model_type != "clip"
        with torch.no_grad():
            self.num_features = self(torch.zeros(1, 3, size, size)).shape[1]

    def forward(self, pixels_B3SS: Tensor) -> Tensor:
        """Map normalised pixels (B, 3, S, S) to vectors (B, F)."""
        return _vectors(self.model.get_image_features(pixel_values=pixels_B3SS))

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Map padded ids (B, L) to vectors (B, F)."""
        mask_BL = length_mask(lengths_B, tokens_BL.shape[1], tokens_BL.device)
        if self._pad is None:
            mask = mask_BL.long() if self._masks else None
            return _vectors(self.model.get_text_features(input_ids=tokens_BL, attention_mask=mask))
        rest = 0, self._longest - tokens_BL.shape[1]
        padded = nn.functional.pad(tokens_BL.masked_fill(~mask_BL, self._pad), rest, value=self._pad)
        return _vectors(self.model.get_text_features(input_ids=padded))


class DualBackbone(ImageBackbone):
    """An image tower with the text tower that belongs to it; both train, or neither."""

    net: Towers

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Features of captions, not normalised.

        Args:
            tokens_BL: int64 ids, (B, L), padded after each caption's end.
            lengths_B: int64 number of ids of each caption, (B,), on the CPU, each at least 1.

        Returns:
            (B, F).
        """
        return self.net.texts(tokens_BL, lengths_B)


def build_dual(config: BackboneConfig, *, image_size: int) -> DualBackbone:
    """Load both towers of a pretrained model.

    Args:
        config: its weights.
        image_size: side of the square images it will see, pixels.

    Raises:
        WeightsError: they cannot be loaded, or are not those of two towers.
        ConfigError: the model sees images of another size.
    """
    from transformers import AutoModel  # two seconds of import

    model = _load(AutoModel, config.weights)
    if not hasattr(model, "get_text_features") or not hasattr(model, "get_image_features"):
        raise WeightsError(f"{config.weights!r} is a {type(model).__name__}, which does not have two towers")
    if (own := model.config.vision_config.image_size) != image_size:
        raise ConfigError(f"{config.weights!r} sees images of {own} px, got {image_size}; set data.image.size: {own}")
    settings = settings_of(config.weights, "preprocessor_config.json")
    mean, std = settings.get("image_mean", CLIP_MEAN), settings.get("image_std", CLIP_STD)
    return DualBackbone(Towers(model), mean=tuple(mean), std=tuple(std))


def build_encoder(weights: str) -> nn.Module:
    """Load a text encoder, whose output has a `last_hidden_state`.

    Raises:
        WeightsError: it cannot be loaded, or is none.
    """
    from transformers import AutoModel, AutoModelForTextEncoding

    try:
        model = _load(AutoModelForTextEncoding, weights)
    except WeightsError:  # as of a kind that this list of the library lacks
        model = _load(AutoModel, weights)
    try:
        with torch.no_grad():
            model(input_ids=torch.ones(1, 2, dtype=torch.long)).last_hidden_state  # noqa: B018  # whether it has them
    except Exception as error:
        raise WeightsError(f"{weights!r} is a {type(model).__name__}, which gives no states of words") from error
    encoder: nn.Module = model
    return encoder


def subwords_of(weights: str) -> Subwords:
    """The tokenizer of a model, which cuts captions to what the model can read.

    Raises:
        WeightsError: it cannot be found.
    """
    from transformers import AutoConfig, AutoTokenizer

    try:
        sizes = AutoConfig.from_pretrained(weights)
        tokenizer = AutoTokenizer.from_pretrained(weights).backend_tokenizer
    except (OSError, ValueError, AttributeError, ImportError) as error:
        raise WeightsError(f"cannot load the tokenizer of {weights!r}: {first_line(error)}") from error
    longest = getattr(getattr(sizes, "text_config", sizes), "max_position_embeddings", 512)
    # Of the positions of RoBERTa and its like the first two stand for no word.
    tokenizer.enable_truncation(longest - (2 if longest % 2 == 0 and longest % 64 == 2 else 0))
    return Subwords(tokenizer.to_str())


@cache
def is_bert(weights: str) -> bool:
    """Whether a text encoder is a BERT, which `goal_core.models.bert` builds.

    Raises:
        WeightsError: its configuration cannot be found.
    """
    from transformers import AutoConfig

    try:
        return bool(AutoConfig.from_pretrained(weights).model_type == "bert")
    except (OSError, ValueError) as error:
        raise WeightsError(f"cannot find the text encoder {weights!r}: {first_line(error)}") from error


def _load(kind: Any, weights: str) -> Any:
    from transformers.utils import logging

    logging.disable_progress_bar()  # which would fill the logs of workers
    try:
        return kind.from_pretrained(weights, use_safetensors=True, dtype=torch.float32)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise WeightsError(f"cannot load the model {weights!r}: {first_line(error)}") from error


def file_of(weights: str, name: str) -> Path | None:
    """A file of a model, in its folder or in the hub's cache; None where there is none."""
    from transformers.utils import cached_file

    options: dict[str, Any] = {"_raise_exceptions_for_missing_entries": False}
    try:
        file = cached_file(weights, name, **options)
    except (OSError, ValueError):
        return None
    return None if file is None else Path(file)


def settings_of(weights: str, name: str) -> dict[str, Any]:
    """The settings in a JSON file of a model; empty where there is none.

    Raises:
        DataError: the file cannot be read.
    """
    if (path := file_of(weights, name)) is None:
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _vectors(output: Any) -> Tensor:
    """Of a model's answer the vectors; before version 5 of the library it is nothing else."""
    vectors: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return vectors
