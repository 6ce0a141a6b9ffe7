"""The frameworks, which are the published systems and one's own: how each builds the parts of its models.

`sweeps` and the command line list them; `checkpoints` and the rooms above it build models with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from goal_sweep.goal_core.basics.errors import ConfigError, about
from goal_sweep.goal_core.basics.registry import Registry
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.models import weights
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.sizes import CAPTION_LENGTH, HeadSize, bert_size, encoder_size, num_regions
from goal_sweep.goal_core.objectives import ObjectiveConfig
from goal_sweep.goal_core.objectives.weights import FROM_MODEL

if TYPE_CHECKING:
    from goal_sweep.goal_core.data import DataConfig
    from goal_sweep.goal_core.data.batches import Augment
    from goal_sweep.goal_core.data.text import Tokenizer, Wordpieces
    from goal_sweep.goal_core.models.backbones import ImageBackbone
    from goal_sweep.goal_core.models.heads import Heads

_FEATURES = {
    "precomp": ("one vector per image (data.format precomp)", "vsepp"),
    "regions": ("regions of each image (data.format regions)", "vse_infty"),
    "embeddings": ("vectors of images and texts (data.format embeddings)", "vectors"),
}
"""Formats of precomputed features: what they are, and which framework takes them."""


class Framework:
    """One system: how its parts are built. The parts define their own computation (:class:`Heads`).

    As it is, a model is a pooled backbone or regions, any text encoder of `model.text`, and heads. One of one's own
    sets `heads_class`.
    """

    uses: ClassVar[frozenset[str]] = frozenset({"framework", "backbone", "text", "embed_dim", "options"})
    """The fields of `ModelConfig` that it reads; only these enter the cell id."""
    stacks_heads: ClassVar[bool] = False
    """Whether the heads of several cells can run as batched products (`Heads.stacked`)."""
    features: ClassVar[str] = ""
    """The `data.format` of the precomputed features that it takes besides images; empty: none."""
    heads_class: ClassVar[str | type[Heads]] = "vsepp:VseppHeads"
    """Its heads, or their module and name in `goal_core.models.systems`, which load torch."""
    cells: ClassVar[bool] = False
    """Whether it takes the cells of a backbone's last feature map, rather than one pooled vector."""

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Check that the model and the data go together; a `ConfigError` of one line says why not."""
        if data.image is None and data.format != self.features:
            own = f", or {_FEATURES[self.features][0]}" if self.features else ""
            what, other = _FEATURES[data.format]
            raise ConfigError(f"framework {model.framework} needs images{own}; {what} goes with framework {other}")
        if (data.image is None) != (model.backbone.weights == "precomputed"):
            only = f"with data.format {self.features}, and only there" if self.features else "never"
            got = f"got {model.backbone.weights!r} with {data.format}"
            raise ConfigError(f"framework {model.framework} takes backbone weights `precomputed` {only}; {got}")

    def objective(self, config: ObjectiveConfig) -> ObjectiveConfig:
        """An objective as a cell of this framework trains it; a `ConfigError` where the model lacks what it needs."""
        if FROM_MODEL in config.params.values():
            raise ConfigError(f"{config.name}: only models of framework dual bring a temperature of their own")
        return config

    def stacks(self, model: ModelConfig) -> bool:
        """Whether the heads of several cells of a model can run as batched products."""
        return self.stacks_heads and not ("text" in self.uses and model.text.encoder)

    def weights_id(self, model: ModelConfig) -> str:
        """An identifier of the initial weights of the backbone and the text encoder, by content."""
        image = "precomputed" if model.backbone.weights == "precomputed" else weights.weights_id(model.backbone)
        return " ".join([image, *self.ids_of_folders(model)])

    def ids_of_folders(self, model: ModelConfig) -> list[str]:
        """Identifiers of the folders, or models of the hub, that also a checkpoint with all weights is read with."""
        with about(self.text_setting(model)):
            return [f"{part} {weights.hub_id(name)}" for part, name in self._text_weights(model)]

    def _text_weights(self, model: ModelConfig) -> list[tuple[str, str]]:
        texts = {"bert": model.bert.weights, "text": model.text.encoder}
        return [(part, name) for part, name in texts.items() if part in self.uses and name]

    def text_setting(self, model: ModelConfig) -> str:
        """The setting that names the text encoder's weights; empty where there is none."""
        settings = {"bert": "model.bert.weights", "text": "model.text.encoder"}
        return next((settings[part] for part, _ in self._text_weights(model)), "")

    def brings_tokenizer(self, model: ModelConfig) -> bool:
        """Whether the model has a tokenizer from elsewhere, so that no words of the captions are counted."""
        return any(weights.tokenizer_named(name) for _, name in self._text_weights(model))

    def draws_heads(self, model: ModelConfig) -> bool:
        """Whether goal-sweep's own heads are drawn at random as a whole, with no weights or code from elsewhere."""
        return isinstance(self.heads_class, str) and all(name == "random" for _, name in self._text_weights(model))

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        """The image backbone with its initial weights; None where the data already consists of features."""
        from goal_sweep.goal_core.models.backbones import build_backbone

        if data.image is None:
            return None
        return build_backbone(model.backbone, image_size=data.image.size, seed=seed, cells=self.cells)

    def without_backbone_weights(self, model: ModelConfig) -> ModelConfig:
        """The model for a checkpoint that has the backbone's weights, so that no others need to be loaded first."""
        return replace(model, backbone=replace(model.backbone, weights="random"))

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        """Build the tokenizer from the train and val captions."""
        words = partial(Vocabulary.build, captions, min_word_count)
        if not model.text.encoder:
            return words()
        from goal_sweep.goal_core.models.hub import tokenizer_of

        return tokenizer_of(model.text.encoder, words)

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> Heads:
        """Everything else that trains, for features of a width."""
        kind: Any = self.heads_class
        if isinstance(kind, str):
            kind = resolve_name(f"goal_sweep.goal_core.models.systems.{kind}")
        heads: Heads = kind(model, num_features=num_features, vocab_size=len(tokenizer), seed=seed)
        return heads

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        """The size of the text encoder and heads, counted as matrix products: without biases and norms."""
        head = width * model.embed_dim
        if "text" not in self.uses or not model.text.encoder or model.text.encoder in weights.text_encoders:
            return HeadSize(2 * head, head / 1e9, head / 1e9)  # texts, whose width is not known here, as images
        bert, params = encoder_size(model.text.encoder)
        layers, of_text = 12 * bert.layers * bert.width**2, bert.width * model.embed_dim
        caption, word_width = CAPTION_LENGTH * layers + of_text, bert.width * bert.layers
        return HeadSize(params + layers + head + of_text, head / 1e9, caption / 1e9, word_width=word_width)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> Augment | None:
        """How training pairs are augmented besides the image's own augmentation; None if they are not."""
        return None


frameworks: Registry[type[Framework]] = Registry("framework")
"""By the name in sweep files."""


@frameworks.register("vsepp", source="Faghri et al., BMVC 2018")
class Vsepp(Framework):
    """VSE++: one vector per image, from a backbone that pools or precomputed, and a GRU over words."""

    uses = Framework.uses - {"options"}
    stacks_heads = True
    features = "precomp"

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        if model.text.encoder:
            return super().head_size(model, data, width=width, words=words)
        dim, word_dim = model.embed_dim, model.text.word_dim
        gru = 3 * dim * (word_dim + dim)
        params = width * dim + words * word_dim + gru + 7 * dim
        return HeadSize(params, width * dim / 1e9, CAPTION_LENGTH * gru / 1e9)


@frameworks.register("vse_infty", source="Chen et al., CVPR 2021")
class VseInfty(Framework):
    """VSE-infinity: precomputed regions or the cells of a backbone, and BERT."""

    cells = True
    heads_class = "vse_infty:VseInftyHeads"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "vse_infty"})
    features = "regions"

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        from goal_sweep.goal_core.models.hub import bert_wordpieces

        return bert_wordpieces(model.bert, captions, min_word_count)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, layers, regions = model.embed_dim, 12 * bert.layers * bert.width**2, num_regions(data)
        mlp = (width + dim) * dim // 2 if model.backbone.weights == "precomputed" else 0
        params += layers + (width + bert.width) * dim + mlp
        image, caption = regions * (width * dim + mlp), CAPTION_LENGTH * (layers + bert.width * dim)
        word_width = model.bert.width * model.bert.layers
        return HeadSize(params, image / 1e9, caption / 1e9, regions=regions, word_width=word_width)

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> Augment | None:
        from goal_sweep.goal_core.data.text import Wordpieces
        from goal_sweep.goal_core.models.systems.vse_infty import PairAugment

        if not (rate := model.vse_infty.size_augment):
            return None
        if not isinstance(tokenizer, Wordpieces):
            raise ConfigError(f"words of {model.bert.weights!r} cannot be masked; set model.vse_infty.size_augment: 0")
        return PairAugment(rate=rate, wordpieces=tokenizer, seed=seed)


@frameworks.register("xvlm", source="Zeng et al., ICML 2022")
class Xvlm(Framework):
    """X-VLM: the cells of a backbone, a BERT in two halves, and image-text matching beside the objective."""

    cells = True
    heads_class = "xvlm:XvlmHeads"
    uses = frozenset({"framework", "backbone", "embed_dim", "bert", "xvlm"})

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        super().check(model, data)
        if model.bert.weights == "random" and model.xvlm.fusion_layer >= model.bert.layers:
            layers, got = model.bert.layers, model.xvlm.fusion_layer
            raise ConfigError(f"xvlm.fusion_layer must leave a layer of BERT's {layers} to see the image, got {got}")

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone:
        from goal_sweep.goal_core.models.backbones import build_backbone

        assert data.image is not None
        build = partial(build_backbone, cells=True, drop_path=model.xvlm.drop_path, clip_pixels=True)
        return build(model.backbone, image_size=data.image.size, seed=seed)

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Wordpieces:
        from goal_sweep.goal_core.data.text import Wordpieces, clean_caption
        from goal_sweep.goal_core.models.hub import bert_wordpieces

        cleaned = map(clean_caption, captions if model.bert.weights == "random" else ())
        wordpieces = bert_wordpieces(model.bert, cleaned, min_word_count)
        if not isinstance(wordpieces, Wordpieces) or model.bert.weights in weights.text_encoders:
            raise ConfigError(f"X-VLM splits a BERT in two; {model.bert.weights!r} is none")
        return replace(wordpieces, cleans=True)

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        bert, params = bert_size(model, words)
        dim, inner, layer, regions = model.embed_dim, bert.width, 12 * bert.width**2, num_regions(data)
        lower, upper = model.xvlm.fusion_layer, bert.layers - model.xvlm.fusion_layer
        params += bert.layers * layer + (width + inner) * dim + upper * 2 * inner * (inner + width) + 2 * inner**2
        caption = CAPTION_LENGTH * lower * layer / 1e9
        pair = upper * (CAPTION_LENGTH * (layer + 2 * inner**2) + regions * 2 * width * inner) / 1e9
        return HeadSize(params, width * dim / 1e9, caption, pair, regions, model.bert.width * model.bert.layers)


class _OnVectors(Framework):
    """A head, or none, on a vector of each image and each text."""

    uses = frozenset({"framework", "backbone", "embed_dim", "vectors"})
    heads_class = "vsepp:VectorHeads"
    stacks_heads = True


@frameworks.register("vectors")
class Vectors(_OnVectors):
    """Heads on vectors of images and texts that any encoders have computed."""

    features = "embeddings"

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        if data.image is not None:
            raise ConfigError(f"framework {model.framework} needs {_FEATURES[self.features][0]}, not images")
        if model.vectors.image_head == model.vectors.text_head == "none":
            raise ConfigError("image_head and text_head must not both be none, or nothing would be trained")
        super().check(model, data)


@frameworks.register("dual")
class Dual(_OnVectors):
    """A pretrained image tower and text tower, such as CLIP's, with or without heads on them."""

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        super().check(model, data)
        if model.backbone.weights in weights.NAMED_WEIGHTS:
            example = "{name: clip, weights: openai/clip-vit-base-patch32}"
            raise ConfigError(f"framework dual needs backbones such as {example}; got {model.backbone.weights!r}")

    def objective(self, config: ObjectiveConfig) -> ObjectiveConfig:
        return config.of_model()

    def brings_tokenizer(self, model: ModelConfig) -> bool:
        return True

    def weights_id(self, model: ModelConfig) -> str:
        if model.backbone.name.startswith(weights.OPEN_CLIP):
            return f"sha256:{weights.file_sha256(weights.existing(Path(model.backbone.weights)))[:16]}"
        return weights.hub_id(model.backbone.weights)

    def ids_of_folders(self, model: ModelConfig) -> list[str]:
        return [self.weights_id(model)]

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone:
        from goal_sweep.goal_core.models.hub import build_dual
        from goal_sweep.goal_core.models.open_clip_towers import build_open_clip

        assert data.image is not None
        build = build_open_clip if model.backbone.name.startswith(weights.OPEN_CLIP) else build_dual
        return build(model.backbone, image_size=data.image.size)

    def without_backbone_weights(self, model: ModelConfig) -> ModelConfig:
        return model  # which has the towers' configuration in the same place

    def tokenizer(self, model: ModelConfig, captions: Iterable[str], min_word_count: int) -> Tokenizer:
        from goal_sweep.goal_core.models.hub import subwords_of
        from goal_sweep.goal_core.models.open_clip_towers import open_clip_tokens

        if model.backbone.name.startswith(weights.OPEN_CLIP):
            return open_clip_tokens(model.backbone.name)
        return subwords_of(model.backbone.weights)


def framework_of(model: ModelConfig) -> Framework:
    """The framework of a model."""
    return frameworks[model.framework].function()


def brings_tokenizer(model: ModelConfig) -> bool:
    """Whether a model, or the checkpoint that it starts from, has a tokenizer, so that no words are counted."""
    return bool(model.init_from) or framework_of(model).brings_tokenizer(model)


def backbone_setting(model: ModelConfig) -> str:
    """The setting that says which weights the backbone has: their place or, where that is no file, its name."""
    own = model.backbone
    return f"model.backbones.{own.name}.{'name' if own.weights in weights.NAMED_WEIGHTS else 'weights'}"


def initial_weights_id(model: ModelConfig) -> str:
    """The identifier in the cell id of the initial weights, by content and never by path, and of one's own parts."""
    with about(backbone_setting(model)):
        parts, entry = [framework_of(model).weights_id(model)], frameworks[model.framework]
    if entry.plugin:
        parts.append(f"framework plugin:{entry.code}")
    if model.init_from:
        with about("model.init_from"):
            parts.append(f"init {weights.file_sha256(weights.existing(Path(model.init_from)))[:16]}")
    return " ".join(parts)
