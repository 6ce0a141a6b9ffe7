"""The published systems: how each builds the parts of its models.

`sweeps` and the command line list them; `checkpoints` and the rooms above it build models with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from goal_core import models
from goal_core.basics.errors import ConfigError
from goal_core.data import text
from goal_core.models.config import ModelConfig
from goal_core.models.sizes import CAPTION_LENGTH, HeadSize, bert_size, num_regions
from goal_core.models.weights import existing, file_sha256

if TYPE_CHECKING:
    from goal_core.data import DataConfig
    from goal_core.data.text import PairAugment, Tokenizer, Wordpieces
    from goal_core.models import Heads, ImageBackbone

_FEATURES = {
    "precomp": ("one vector per image (data.format precomp)", "vsepp"),
    "regions": ("regions of each image (data.format regions)", "vse_infty"),
    "embeddings": ("vectors of images and texts (data.format embeddings)", "vectors"),
}
"""Formats of precomputed features: what they are, and which framework takes them."""


class Framework:
    """One published system: how its parts are built. The parts define their own computation (:class:`Heads`)."""

    name: ClassVar[str]
    """Its name in sweep files."""
    uses: ClassVar[frozenset[str]]
    """The fields of `ModelConfig` that it reads; only these enter the cell id."""
    stacks_heads: ClassVar[bool] = False
    """Whether the heads of several cells can run as batched products (`Heads.stacked`)."""
    features: ClassVar[str] = ""
    """The `data.format` of the precomputed features that it takes besides images; empty: none."""
    heads_class: ClassVar[str]
    """The name of its heads in `goal_core.models`."""
    cells: ClassVar[bool] = True
    """Whether it takes the cells of a backbone's last feature map, rather than one pooled vector."""

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Check that the model and the data go together.

        Raises:
            ConfigError: they do not; the message is one line.
        """
        if data.image is None and data.format != self.features:
            own = f", or {_FEATURES[self.features][0]}" if self.features else ""
            what, other = _FEATURES[data.format]
            raise ConfigError(f"framework {self.name} needs images{own}; {what} goes with framework {other}")
        if (data.image is None) != (model.backbone.weights == "precomputed"):
            only = f"with data.format {self.features}, and only there" if self.features else "never"
            raise ConfigError(
                f"framework {self.name} takes backbone weights `precomputed` {only}; "
                f"got {model.backbone.weights!r} with {data.format}"
            )

    def stacks(self, model: ModelConfig) -> bool:
        """Whether the heads of several cells of a model can run as batched products."""
        return self.stacks_heads and not ("text" in self.uses and model.text.encoder)

    def weights_id(self, model: ModelConfig) -> str:
        """An identifier of the initial weights of the backbone and the text encoder, by content.

        Raises:
            WeightsError: a file is missing.
        """
        image = "precomputed" if model.backbone.weights == "precomputed" else models.weights_id(model.backbone)
        texts = {"bert": model.bert.weights, "text": model.text.encoder}
        of_text = [f" {part} {models.hub_id(name)}" for part, name in texts.items() if part in self.uses and name]
        return "".join((image, *of_text))

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        """The image backbone with its initial weights; None where the data already consists of features."""
        if data.image is None:
            return None
        return models.build_backbone(model.backbone, image_size=data.image.size, seed=seed, cells=self.cells)

    def without_backbone_weights(self, model: ModelConfig) -> ModelConfig:
        """The model for a checkpoint that has the backbone's weights, so that no others need to be loaded first."""
        return replace(model, backbone=replace(model.backbone, weights="random"))

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        """Build the tokenizer of the captions.

        Args:
            model: the model.
            captions: the train and val captions.
            min_word_count: threshold of a vocabulary that is built from them.
        """
        raise NotImplementedError

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> Heads:
        """Everything else that trains.

        Args:
            model: the model.
            num_features: width of the backbone's features, or of the precomputed ones.
            tokenizer: of the captions.
            seed: draws the initial weights that no file contains.
        """
        heads: Heads = getattr(models, self.heads_class)(
            model, num_features=num_features, vocab_size=len(tokenizer), seed=seed
        )
        return heads

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        """The size of the text encoder and heads, counted as matrix products: without biases and norms.

        Args:
            model: the model.
            data: the data's settings.
            width: numbers that the backbone gives for an image or a region.
            words: words of the vocabulary.
        """
        raise NotImplementedError

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        """How training pairs are augmented besides the image's own augmentation; None if they are not."""
        return None


class Vsepp(Framework):
    """VSE++: one vector per image, from a backbone that pools or precomputed, and a GRU over words."""

    name = "vsepp"
    heads_class = "VseppHeads"
    uses = frozenset({"framework", "backbone", "text", "embed_dim"})
    stacks_heads = True
    features = "precomp"
    cells = False

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        if model.text.encoder:
            return models.subwords_of(model.text.encoder)
        return text.Vocabulary.build(captions, min_word_count)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        dim, word_dim = model.embed_dim, model.text.word_dim
        gru = 3 * dim * (word_dim + dim)
        params = width * dim + words * word_dim + gru + 7 * dim
        return HeadSize(params, width * dim / 1e9, CAPTION_LENGTH * gru / 1e9)


class VseInfty(Framework):
    """VSE-infinity: precomputed regions or the cells of a backbone, and BERT."""

    name = "vse_infty"
    heads_class = "VseInftyHeads"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "vse_infty"})
    features = "regions"

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        return models.bert_wordpieces(model.bert, captions, min_word_count)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, layers, regions = model.embed_dim, 12 * bert.layers * bert.width**2, num_regions(data)
        mlp = (width + dim) * dim // 2 if model.backbone.weights == "precomputed" else 0
        params += layers + (width + bert.width) * dim + mlp
        image, caption = regions * (width * dim + mlp), CAPTION_LENGTH * (layers + bert.width * dim)
        word_width = model.bert.width * model.bert.layers
        return HeadSize(params, image / 1e9, caption / 1e9, regions=regions, word_width=word_width, is_sorted=True)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        if not (rate := model.vse_infty.size_augment):
            return None
        if not isinstance(tokenizer, text.Wordpieces):
            raise ConfigError(f"words of {model.bert.weights!r} cannot be masked; set model.vse_infty.size_augment: 0")
        return text.PairAugment(rate=rate, wordpieces=tokenizer, seed=seed)


class Xvlm(Framework):
    """X-VLM: the cells of a backbone, a BERT in two halves, and image-text matching beside the objective."""

    name = "xvlm"
    heads_class = "XvlmHeads"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "xvlm"})

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        super().check(model, data)
        if model.bert.weights == "random" and model.xvlm.fusion_layer >= model.bert.layers:
            raise ConfigError(
                f"xvlm.fusion_layer must leave a layer of BERT's {model.bert.layers} to see the image, "
                f"got {model.xvlm.fusion_layer}"
            )

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone:
        assert data.image is not None
        size, drop_path = data.image.size, model.xvlm.drop_path
        return models.build_backbone(
            model.backbone, image_size=size, seed=seed, cells=True, drop_path=drop_path, clip_pixels=True
        )

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Wordpieces:
        cleaned = [text.clean_caption(caption) for caption in captions] if model.bert.weights == "random" else ()
        wordpieces = models.bert_wordpieces(model.bert, cleaned, min_word_count)
        if not isinstance(wordpieces, text.Wordpieces):
            raise ConfigError(f"X-VLM splits a BERT in two; {model.bert.weights!r} is none")
        return replace(wordpieces, cleans=True)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, inner, layer, regions = model.embed_dim, bert.width, 12 * bert.width**2, num_regions(data)
        lower, upper = model.xvlm.fusion_layer, bert.layers - model.xvlm.fusion_layer
        params += bert.layers * layer + (width + inner) * dim + upper * 2 * inner * (inner + width) + 2 * inner**2
        caption = CAPTION_LENGTH * lower * layer / 1e9
        pair = upper * (CAPTION_LENGTH * (layer + 2 * inner**2) + regions * 2 * width * inner) / 1e9
        word_width = model.bert.width * model.bert.layers
        return HeadSize(params, width * dim / 1e9, caption, pair, regions, word_width)


class _OnVectors(Framework):
    """A head, or none, on a vector of each image and each text."""

    uses = frozenset({"framework", "backbone", "embed_dim", "vectors"})
    heads_class = "VectorHeads"
    stacks_heads = True
    cells = False

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        head = width * model.embed_dim  # of texts, whose width is not known here, as of images
        return HeadSize(2 * head, head / 1e9, head / 1e9)


class Vectors(_OnVectors):
    """Heads on vectors of images and texts that any encoders have computed."""

    name = "vectors"
    features = "embeddings"

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if data.image is not None:
            raise ConfigError(f"framework {self.name} needs {_FEATURES[self.features][0]}, not images")
        if model.vectors.image_head == model.vectors.text_head == "none":
            raise ConfigError("image_head and text_head must not both be none, or nothing would be trained")
        super().check(model, data)


class Dual(_OnVectors):
    """A pretrained image tower and text tower, such as CLIP's, with or without heads on them."""

    name = "dual"

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        super().check(model, data)
        if model.backbone.weights in models.NAMED_WEIGHTS:
            raise ConfigError(
                "framework dual needs backbones such as {name: clip, weights: openai/clip-vit-base-patch32}, whose "
                f"weights are a name on the Hugging Face hub or a folder; got {model.backbone.weights!r}"
            )

    def weights_id(self, model: ModelConfig) -> str:
        return models.hub_id(model.backbone.weights)

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone:
        assert data.image is not None
        return models.build_dual(model.backbone, image_size=data.image.size)

    def without_backbone_weights(self, model: ModelConfig) -> ModelConfig:
        return model  # which has the towers' configuration in the same place

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        return models.subwords_of(model.backbone.weights)


FRAMEWORKS: dict[str, Framework] = {
    framework.name: framework for framework in (Vsepp(), VseInfty(), Xvlm(), Vectors(), Dual())
}
"""By the name in sweep files."""


def framework_of(model: ModelConfig) -> Framework:
    """The framework of a model."""
    return FRAMEWORKS[model.framework]


def initial_weights_id(model: ModelConfig) -> str:
    """The initial weights' identifier in the cell id, by content and never by path.

    Raises:
        WeightsError: a file is missing.
    """
    own = framework_of(model).weights_id(model)
    return f"{own} init {file_sha256(existing(Path(model.init_from)))[:16]}" if model.init_from else own
