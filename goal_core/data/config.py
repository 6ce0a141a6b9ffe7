"""What a sweep file says about its data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from goal_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image becomes the square that the backbone sees."""

    size: int = 224
    """Side of the square given to the backbone, in pixels."""
    resize: int = 256
    """The shorter side is resized to this before the centre crop, pixels (evaluation, and training without crops)."""
    augment: Literal["none", "crop_flip"] = "crop_flip"
    """Training images: `none` as in evaluation; `crop_flip` random resized crop (scale .08-1, ratio 3/4-4/3) and
    horizontal flip, as VSE++."""

    def __post_init__(self) -> None:
        """Check the sizes against each other."""
        if self.size < 8:
            raise ConfigError(f"image size must be at least 8 pixels, got size={self.size}")
        if self.resize < self.size:
            raise ConfigError(
                f"resize must be at least size, or the crop leaves the image: resize={self.resize} < size={self.size}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpathyConfig:
    """Images and captions in Karpathy's JSON layout: COCO, Flickr30K and custom sets alike."""

    format: Literal["karpathy"] = "karpathy"
    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`, `emoji`."""
    root: str
    """Folder that holds the annotation file and the images."""
    annotations: str = "auto"
    """Annotation file, relative to the root; `auto` takes the one `dataset_*.json` there."""
    max_captions: int = 5
    """Use at most this many captions of an image, in file order; 0 uses all."""
    min_word_count: int = 4
    """Words seen fewer times than this in the train and val captions become `<unk>`."""
    max_val_images: int = 0
    """Select on the first this many val images only; 0 uses all."""
    image: ImageConfig = field(default_factory=ImageConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("max_captions", "max_val_images"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 (all) or more, got {getattr(self, name)}")
        if self.min_word_count < 1:
            raise ConfigError(f"min_word_count must be at least 1, got {self.min_word_count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenesConfig:
    """Seeded synthetic drawings with five paraphrased captions each; nothing to download."""

    format: Literal["scenes"] = "scenes"
    name: str = "scenes"
    """The dataset's name in tables and in MLflow."""
    num_train: int = 1000
    num_val: int = 200
    num_test: int = 200
    data_seed: int = 0
    """Seed of the drawings and captions; independent of the cells' seeds."""
    min_word_count: int = 1
    """Words seen fewer times than this in the train and val captions become `<unk>`."""
    image: ImageConfig = field(default_factory=lambda: ImageConfig(size=64, resize=64, augment="none"))

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("num_train", "num_val", "num_test", "min_word_count"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")


DataConfig = KarpathyConfig | ScenesConfig
