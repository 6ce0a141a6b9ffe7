"""VSE-infinity: precomputed regions or the cells of a backbone, and BERT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goal_core import models
from goal_core.basics.errors import ConfigError
from goal_core.data import PrecompConfig, text
from goal_core.models.frameworks.sizes import CAPTION_LENGTH, HeadSize, bert_size, num_regions

if TYPE_CHECKING:
    from goal_core.data import DataConfig
    from goal_core.data.text import PairAugment, Tokenizer, Wordpieces
    from goal_core.models import ImageBackbone, ModelConfig, VseInftyHeads


class VseInfty:
    """VSE-infinity; :class:`~goal_core.models.frameworks.framework.Framework` documents the methods."""

    name = "vse_infty"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "vse_infty"})
    stacks_heads = True

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if isinstance(data, PrecompConfig):
            raise ConfigError(
                "framework vse_infty needs regions or cells of each image (data.format regions, or images); "
                "data.format precomp has one vector per image and goes with framework vsepp"
            )
        if (data.image is None) != (model.backbone.weights == "precomputed"):
            raise ConfigError(
                "framework vse_infty takes backbone weights `precomputed` with data.format regions, and only there; "
                f"got {model.backbone.weights!r} with {data.format}"
            )

    def weights_id(self, model: ModelConfig) -> str:
        image = "precomputed" if model.backbone.weights == "precomputed" else models.weights_id(model.backbone)
        return f"{image} bert {models.bert_weights_id(model.bert)}"

    def check_weights(self, model: ModelConfig, data: DataConfig) -> None:
        if data.image is not None:
            models.check_weights(model.backbone, image_size=data.image.size)
        if model.bert.weights != "random":
            models.build_bert(model.bert, vocab_size=len(models.bert_wordpieces(model.bert, (), 1)))

    def tokenizer(self, model: ModelConfig, captions: Sequence[str], min_word_count: int) -> Wordpieces:
        return models.bert_wordpieces(model.bert, captions, min_word_count)

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        if data.image is None:
            return None
        return models.build_backbone(model.backbone, image_size=data.image.size, seed=seed, cells=True)

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> VseInftyHeads:
        return models.VseInftyHeads(
            model,
            num_features=num_features,
            vocab_size=len(tokenizer),
            regions=model.backbone.weights == "precomputed",
            seed=seed,
        )

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, layers, regions = model.embed_dim, 12 * bert.layers * bert.width**2, num_regions(data)
        mlp = (width + dim) * dim // 2 if model.backbone.weights == "precomputed" else 0
        params += layers + (width + bert.width) * dim + mlp
        image, caption = regions * (width * dim + mlp), CAPTION_LENGTH * (layers + bert.width * dim)
        word_width = model.bert.width * model.bert.layers
        return HeadSize(params, image / 1e9, caption / 1e9, regions=regions, word_width=word_width, is_sorted=True)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        assert isinstance(tokenizer, text.Wordpieces)
        rate = model.vse_infty.size_augment
        return text.PairAugment(rate=rate, wordpieces=tokenizer, seed=seed) if rate else None
