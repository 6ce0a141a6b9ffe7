"""The model settings of a sweep file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal

from goal_sweep.goal_core.basics.ranges import InRange, Range

Size = Annotated[int, Range(at_least=1)]
Rate = Annotated[float, Range(at_least=0, below=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneConfig:
    """An image backbone of timm or torchvision, or both towers of `dual`, and the source of its initial weights."""

    name: str
    """Any timm architecture that pools to one vector, such as `resnet152`, `vit_base_patch16_224`; one of torchvision,
    such as `torchvision:resnet50`. Of `dual`: any name for the tables, or a model of open_clip,
    such as `open_clip:ViT-B-32`."""
    weights: str = "timm"
    """`timm`: the architecture's default pretrained weights (downloaded, or from timm's cache); `random`: drawn from
    the cell's seed; `precomputed`: the data are features, which tables show under `name`; otherwise the path of a
    `.safetensors` or weights-only checkpoint file. Of `dual`: a two-tower model on the Hugging Face hub, such as
    `openai/clip-vit-base-patch32`, or its folder; of open_clip, a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextConfig(InRange):
    """VSE++'s text encoder: word embedding and a one-directional GRU with `embed_dim` units, or a pretrained one."""

    word_dim: Size = 300
    """Width of the word embedding before the GRU."""
    encoder: str = ""
    """In place of the GRU: a text encoder of the transformers library, as a name on the Hugging Face hub or a folder,
    or one of a plugin. Empty: the GRU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig(InRange):
    """The BERT that encodes captions."""

    weights: str = "bert-base-uncased"
    """`random`: drawn from the cell's seed; a folder with `config.json`, weights, and `vocab.txt` or `tokenizer.json`;
    otherwise a model's name on the Hugging Face hub. In VSE-infinity any text encoder of the transformers library, or
    one of a plugin; one that is no BERT and brings a tokenizer needs `size_augment: 0`."""
    layers: Size = 12
    """Transformer layers; used with `random` weights only, as are the next two."""
    width: Size = 768
    """Width of the hidden states."""
    heads: Size = 12
    """Attention heads."""

    def problems(self) -> Iterator[str]:
        """Heads of different widths."""
        if self.heads > 0 and self.width % self.heads:
            yield f"heads must divide width, got width={self.width}, heads={self.heads}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VseInftyConfig(InRange):
    """Settings of VSE-infinity alone."""

    size_augment: Rate = 0.2
    """Share of regions dropped and of words masked, replaced or dropped in training; upper bound of the share of grid
    cells dropped. 0 changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmConfig(InRange):
    """Settings of X-VLM alone."""

    fusion_layer: Size = 6
    """Number of BERT's first layers that see only the caption; the others see the image too."""
    drop_path: Rate = 0.1
    """Stochastic depth of the image backbone: probability of skipping the last block, falling to 0 at the first."""
    temperature: Annotated[float, Range(above=0)] = 0.07
    """Divides the similarities by which the negatives of image-text matching are drawn, and those in the contrastive
    loss to which the objective is scaled; it is not trained."""
    objective_weight: Annotated[float, Range(at_least=0)] = 1.0
    """Size of the objective's gradient on the embeddings when it begins, relative to that of the contrastive loss that
    it replaces; 0 leaves image-text matching alone."""
    objective_scale: Annotated[float | Literal["itc"], Range(above=0)] = "itc"
    """The objective's sum over a batch of B is multiplied by `objective_weight * objective_scale / (2 B)`. `itc`: the
    scale of each objective is measured (docs/frameworks.md); a number serves all alike."""
    rerank_top: Annotated[int, Range(at_least=0)] = 256
    """Evaluation re-ranks this many nearest candidates of each query by image-text matching; 0 ranks by similarity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsConfig:
    """Heads on vectors that other encoders have computed, and on the towers of `dual`."""

    image_head: Literal["linear", "none"] = "linear"
    """`linear`: normalised, mapped to `embed_dim` numbers, and normalised again, as VSE++'s image head; `none`: only
    normalised."""
    text_head: Literal["linear", "none"] = "linear"
    """The same for the texts. In `dual` a head that does not change the width begins as the identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts(InRange):
    """What models have beside their image backbone: the framework, the text encoder and the joint space."""

    framework: str = "vsepp"
    """`vsepp`, `vse_infty`, `xvlm`, `vectors`, `dual`, or one of a plugin."""
    text: TextConfig = field(default_factory=TextConfig)
    """Text encoder of VSE++."""
    embed_dim: Size = 1024
    """Dimensions of the joint embedding space, and of the GRU's state."""
    bert: BertConfig = field(default_factory=BertConfig)
    """Text encoder of VSE-infinity and X-VLM."""
    vse_infty: VseInftyConfig = field(default_factory=VseInftyConfig)
    """Used by that framework only."""
    xvlm: XvlmConfig = field(default_factory=XvlmConfig)
    """Used by that framework only."""
    vectors: VectorsConfig = field(default_factory=VectorsConfig)
    """Used by that framework and by `dual`."""
    options: dict[str, int | float | bool | str] = field(default_factory=dict, hash=False)
    """Settings of a framework of your own, which reads them as `model.options`."""
    init_from: str = ""
    """A checkpoint from which the first stage starts: a `best-*.safetensors` of a cell, or what `goal-sweep convert`
    made of a published checkpoint. Its tokenizer comes with it. Empty: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(ModelParts):
    """One model."""

    backbone: BackboneConfig
