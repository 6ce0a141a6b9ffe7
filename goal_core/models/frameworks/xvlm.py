"""X-VLM: the cells of a vision transformer, BERT in two halves, image-text matching besides the objective."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from goal_core import models
from goal_core.basics.errors import ConfigError
from goal_core.data import text
from goal_core.models.frameworks.sizes import CAPTION_LENGTH, HeadSize, bert_size, num_regions

if TYPE_CHECKING:
    from goal_core.data import DataConfig
    from goal_core.data.text import CleanedWordpieces, PairAugment, Tokenizer
    from goal_core.models import ImageBackbone, ModelConfig, XvlmHeads


class Xvlm:
    """X-VLM; :class:`~goal_core.models.frameworks.framework.Framework` documents the methods."""

    name = "xvlm"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "xvlm"})
    stacks_heads = False

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if data.image is None or model.backbone.weights == "precomputed":
            raise ConfigError(
                "framework xvlm needs images and a backbone; precomputed regions go with vse_infty, vectors with vsepp"
            )
        if model.bert.weights == "random" and model.xvlm.fusion_layer >= model.bert.layers:
            raise ConfigError(
                f"xvlm.fusion_layer must leave a layer of BERT's {model.bert.layers} to see the image, "
                f"got {model.xvlm.fusion_layer}"
            )

    def weights_id(self, model: ModelConfig) -> str:
        return f"{models.weights_id(model.backbone)} bert {models.bert_weights_id(model.bert)}"

    def check_weights(self, model: ModelConfig, data: DataConfig) -> None:
        self.backbone(model, data, seed=0)
        if model.bert.weights != "random":
            pieces = len(models.bert_wordpieces(model.bert, (), 1))
            models.split_bert(model.bert, vocab_size=pieces, fusion_layer=model.xvlm.fusion_layer, image_width=1)

    def tokenizer(self, model: ModelConfig, captions: Sequence[str], min_word_count: int) -> CleanedWordpieces:
        cleaned = [text.clean_caption(caption) for caption in captions] if model.bert.weights == "random" else ()
        return text.CleanedWordpieces(wordpieces=models.bert_wordpieces(model.bert, cleaned, min_word_count))

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone:
        assert data.image is not None
        return models.build_backbone(
            model.backbone,
            image_size=data.image.size,
            seed=seed,
            cells=True,
            drop_path=model.xvlm.drop_path,
            clip_pixels=True,
        )

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> XvlmHeads:
        return models.XvlmHeads(model, num_features=num_features, vocab_size=len(tokenizer), seed=seed)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, inner, layer, regions = model.embed_dim, bert.width, 12 * bert.width**2, num_regions(data)
        lower, upper = model.xvlm.fusion_layer, bert.layers - model.xvlm.fusion_layer
        params += bert.layers * layer + (width + inner) * dim + upper * 2 * inner * (inner + width) + 2 * inner**2
        caption = CAPTION_LENGTH * lower * layer / 1e9
        pair = upper * (CAPTION_LENGTH * (layer + 2 * inner**2) + regions * 2 * width * inner) / 1e9
        word_width = model.bert.width * model.bert.layers
        return HeadSize(params, width * dim / 1e9, caption, pair, regions, word_width)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        return None  # only the images are augmented, when they are loaded
