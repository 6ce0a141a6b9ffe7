"""The sizes of models and data, from which their cost on a device follows. Nothing is built for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from goal_sweep.goal_core.basics.files import read_json
from goal_sweep.goal_core.data import SplitCounts
from goal_sweep.goal_core.data.text import Vocabulary
from goal_sweep.goal_core.models.config import BertConfig, ModelConfig
from goal_sweep.goal_core.models.weights import TORCHVISION

if TYPE_CHECKING:
    from goal_sweep.goal_core.data import DataConfig, Dataset

CAPTION_LENGTH: Final = 14
"""Words or word pieces of a caption, the special ones included: COCO's mean."""
NUM_REGIONS: Final = (36, 2048)
"""Precomputed regions of an image, and numbers of each: the published ones."""
_BERT_PIECES: Final = 30_522
"""Word pieces of `bert-base-uncased`."""
_NUM_WORDS: Final = 12_000
"""Words of a vocabulary that is not counted: VSE++'s on COCO has 11,755."""
_COUNTED: Final = 50_000
"""Words are counted in at most this many captions."""


class DataSize(NamedTuple):
    """How much there is to train on and to evaluate: captions of train, images of all splits, words of captions."""

    captions: int
    images: int
    val: SplitCounts
    words: int

    @classmethod
    def of(cls, splits: Mapping[str, SplitCounts], words: int = _NUM_WORDS) -> DataSize:
        """From the sizes of the splits; at least that of `train`."""
        val = splits.get("val", SplitCounts(images=0, captions=0))
        return cls(splits["train"].captions, sum(split.images for split in splits.values()), val, words)

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> DataSize:
        """Of data that is at hand."""
        splits = dataset.splits.items()
        counts = {name: SplitCounts(images=own.num_images, captions=own.num_captions) for name, own in splits}
        few = sum(own.captions for own in counts.values()) <= _COUNTED
        return cls.of(counts, len(Vocabulary.build(dataset.vocabulary_captions, 1)) if few else _NUM_WORDS)


class HeadSize(NamedTuple):
    """The size of everything of a model but the backbone; multiply-adds in 1e9, of a forward pass."""

    params: int
    image_gmac: float
    caption_gmac: float
    pair_gmac: float = 0.0
    """Of one image with one caption in a cross encoder."""
    regions: int = 1
    """Regions of an image, or cells of a backbone's grid, as far as the heads take them apart."""
    word_width: int = 0
    """Numbers that all layers of a text encoder give for a word."""


def bert_size(model: ModelConfig, words: int) -> tuple[BertConfig, int]:
    """A model's BERT, and the numbers of its weights without those of its layers.

    One that is drawn at random has the words of the captions, another word pieces of its own.
    """
    if model.bert.weights == "random":
        return model.bert, (words + 512) * model.bert.width
    return encoder_size(model.bert.weights)


def encoder_size(weights: str) -> tuple[BertConfig, int]:
    """As :func:`bert_size`, of a pretrained text encoder: what its folder states; BERT's of a name on the hub."""
    stated = read_json(Path(weights, "config.json"), sealed=False) or {}

    def first(default: int, *names: str) -> int:
        return next((int(stated[name]) for name in names if name in stated), default)

    width = first(768, "hidden_size", "dim", "d_model")
    layers = first(12, "num_hidden_layers", "n_layers", "num_layers")
    bert = BertConfig(weights=weights, width=width, heads=1, layers=layers)
    return bert, (first(_BERT_PIECES, "vocab_size") + 512) * width


def num_regions(data: DataConfig) -> int:
    """Regions of an image, or cells of the grid into which a backbone divides it."""
    return NUM_REGIONS[0] if data.image is None else (data.image.size // 32) ** 2


class BackboneSize(NamedTuple):
    """A backbone as timm has it, without classifier. Megabytes (in fp32) and work are of one image of this size."""

    image_size: int
    """Pixels per side."""
    params_m: float
    """Weights, in millions."""
    width: int
    """Numbers that it gives for an image or for a region."""
    kept_mb: float
    """What autograd keeps of the forward pass until the backward pass, as its hooks for saved tensors see it."""
    passing_mb: float
    """The largest input and output of a layer."""
    gmac: float
    """Multiply-adds of a forward pass, in 1e9, as torch's FlopCounterMode counts them."""


_BACKBONES: Final = {
    "resnet18": BackboneSize(224, 11.18, 512, 22.18, 6.42, 1.81),
    "resnet50": BackboneSize(224, 23.51, 2048, 85.9, 6.42, 4.09),
    "resnet101": BackboneSize(224, 42.50, 2048, 126.84, 6.42, 7.8),
    "resnet152": BackboneSize(224, 58.14, 2048, 177.42, 6.42, 11.51),
    "resnext101_32x4d": BackboneSize(224, 42.13, 2048, 166.79, 6.42, 7.97),
    "resnext101_32x8d": BackboneSize(224, 86.74, 2048, 246.67, 12.85, 16.41),
    "vit_small_patch16_224": BackboneSize(224, 21.67, 384, 59.1, 2.42, 4.6),
    "vit_base_patch16_224": BackboneSize(224, 85.80, 768, 117.56, 4.84, 17.56),
    "swin_base_patch4_window7_224": BackboneSize(224, 86.74, 1024, 226.2, 12.85, 15.43),
    "swin_base_patch4_window12_384": BackboneSize(384, 86.88, 1024, 773.31, 42.47, 47.08),
    "efficientnet_b0": BackboneSize(224, 4.01, 1280, 88.18, 9.63, 0.385),
    "tf_efficientnet_lite0": BackboneSize(224, 3.37, 1280, 79.48, 9.63, 0.384),
    "test_byobnet": BackboneSize(160, 0.20, 256, 3.9, 1.23, 0.031),
    "test_resnet": BackboneSize(160, 0.37, 96, 5.96, 1.64, 0.102),
    "test_vit": BackboneSize(160, 0.31, 64, 2.52, 0.33, 0.038),
    "swin_mini_patch8_window4": BackboneSize(64, 0.14, 64, 0.49, 0.07, 0.0039),
}
_PRECOMPUTED: Final = BackboneSize(1, 0.0, NUM_REGIONS[1], 0.0, 0.0, 0.0)


def backbone_name(model: ModelConfig) -> str:
    """The name by which tables know a model's backbone: timm's, without the tag of the weights."""
    return model.backbone.name.split(".")[0]


def backbone_size(model: ModelConfig) -> BackboneSize | None:
    """The size of a model's backbone; None where the table lacks it. Torchvision's are as large as timm's."""
    name = backbone_name(model).removeprefix(TORCHVISION)
    return _PRECOMPUTED if model.backbone.weights == "precomputed" else _BACKBONES.get(name)
