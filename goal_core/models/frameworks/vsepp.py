"""VSE++: one vector per image, from a backbone that pools or precomputed, and a GRU over words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goal_core import models
from goal_core.basics.errors import ConfigError
from goal_core.data import PrecompConfig, text
from goal_core.models.frameworks.sizes import CAPTION_LENGTH, HeadSize

if TYPE_CHECKING:
    from goal_core.data import DataConfig
    from goal_core.data.text import Tokenizer, Vocabulary
    from goal_core.models import ImageBackbone, ModelConfig, VseppHeads


class Vsepp:
    """VSE++; :class:`~goal_core.models.frameworks.framework.Framework` documents the methods."""

    name = "vsepp"
    uses = frozenset({"framework", "backbone", "text", "embed_dim"})
    stacks_heads = True

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        vectors = isinstance(data, PrecompConfig)
        if data.image is None and not vectors:
            raise ConfigError(
                "framework vsepp needs images, or one vector per image (data.format precomp); "
                f"data.format {data.format} goes with framework vse_infty"
            )
        if vectors != (model.backbone.weights == "precomputed"):
            raise ConfigError(
                "framework vsepp takes backbone weights `precomputed` with data.format precomp, and only there; "
                f"got {model.backbone.weights!r} with {data.format}"
            )

    def weights_id(self, model: ModelConfig) -> str:
        return "precomputed" if model.backbone.weights == "precomputed" else models.weights_id(model.backbone)

    def check_weights(self, model: ModelConfig, data: DataConfig) -> None:
        if data.image is not None:
            models.check_weights(model.backbone, image_size=data.image.size)

    def tokenizer(self, model: ModelConfig, captions: Sequence[str], min_word_count: int) -> Vocabulary:
        return text.Vocabulary.build(captions, min_word_count)

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        if data.image is None:
            return None
        return models.build_backbone(model.backbone, image_size=data.image.size, seed=seed)

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> VseppHeads:
        return models.VseppHeads(
            num_features=num_features,
            vocab_size=len(tokenizer),
            text=model.text,
            embed_dim=model.embed_dim,
            seed=seed,
        )

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        dim, word_dim = model.embed_dim, model.text.word_dim
        gru = 3 * dim * (word_dim + dim)
        params = width * dim + words * word_dim + gru + 7 * dim
        return HeadSize(params, width * dim / 1e9, CAPTION_LENGTH * gru / 1e9)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> None:
        return None
