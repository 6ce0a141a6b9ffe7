"""What a sweep file says about its data."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from goal_core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image becomes the square that the backbone sees."""

    size: int = 224
    """Side of the square given to the backbone, in pixels."""
    resize: int = 256
    """The shorter side is resized to this before the centre crop, pixels (evaluation, and training without crops)."""
    augment: Literal["none", "crop_flip", "vse_infty", "xvlm"] = "crop_flip"
    """Training images: `none` as in evaluation; `crop_flip` random resized crop (scale .08-1, ratio 3/4-4/3) and
    horizontal flip, as VSE++; `vse_infty` a random crop (.6-1 of both sides) stretched to the square, and horizontal
    flip, with the whole image stretched to the square in evaluation (`resize` does not count); `xvlm` random resized
    crop (scale .5-1, ratio 3/4-4/3), horizontal flip and RandAugment(2, 7), evaluation as `vse_infty`, all bicubic."""

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
    vocabulary: Literal["train_val", "legacy"] = "train_val"
    """Captions whose words are counted: `train_val`, those of these two splits that are used; `legacy`, every caption
    in the file, test included, as VSE++'s published code does. For comparison only: the test words are looked at."""
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

    def with_root(self, root: str) -> KarpathyConfig:
        """The same data in another folder."""
        return replace(self, root=root)


MOST_SCENES = 1_000_000
"""Scenes a split; their captions are made at once, a gigabyte of memory for each million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenesConfig:
    """Seeded synthetic drawings with five paraphrased captions each; nothing to download."""

    root: ClassVar[None] = None
    """The data is generated and lies in no folder."""

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
            if getattr(self, name) > MOST_SCENES:
                raise ConfigError(f"{name} must be at most {MOST_SCENES:,}, got {getattr(self, name):,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsConfig:
    """Precomputed features of each image, R regions or grid cells of F numbers, in the layout of SCAN and VSE-infinity.

    For each of train, dev (which is val) and test: `{split}_ims.npy` (N, R, F), `{split}_caps.txt` with one caption a
    line, the same number for every image, and `{split}_ids.txt` with one id an image or one a caption.
    """

    image: ClassVar[None] = None
    """The features are computed already, so no image is decoded."""

    format: Literal["regions"] = "regions"
    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`, `emoji`."""
    root: str
    """Folder that holds the files, or whose folder `precomp` does."""
    test_file: Literal["test", "testall"] = "test"
    """Which files are the test split; `testall` holds all 5,000 test images of COCO."""
    min_word_count: int = 4
    """Words seen fewer times than this in the train and val captions become `<unk>`."""
    max_val_images: int = 0
    """Select on the first this many val images only; 0 uses all. VSE-infinity selects on 1,000."""

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_counts(self.min_word_count, self.max_val_images)

    def with_root(self, root: str) -> RegionsConfig:
        """The same data in another folder."""
        return replace(self, root=root)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdMappedConfig:
    """Raw images beside captions and ids as VSE-infinity keeps them: `id_mapping.json` says which file an id is.

    The root holds `id_mapping.json`, the images' folder, and `precomp/{train,dev,test}_{caps,ids}.txt`.
    """

    format: Literal["id_mapping"] = "id_mapping"
    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`."""
    root: str
    """Folder that holds `id_mapping.json`."""
    test_file: Literal["test", "testall"] = "test"
    """As in `RegionsConfig`."""
    min_word_count: int = 4
    """As in `RegionsConfig`."""
    max_val_images: int = 0
    """As in `RegionsConfig`."""
    image: ImageConfig = field(default_factory=ImageConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        _check_counts(self.min_word_count, self.max_val_images)

    def with_root(self, root: str) -> IdMappedConfig:
        """The same data in another folder."""
        return replace(self, root=root)


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmJsonConfig:
    """Raw images beside X-VLM's JSON files, one list of records for each split."""

    format: Literal["xvlm_json"] = "xvlm_json"
    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`."""
    root: str
    """Folder that holds the JSON files."""
    image_root: str = "images"
    """Folder below which the records' images lie, relative to the root."""
    train_files: tuple[str, ...]
    """JSON files of pairs, relative to the root."""
    val_file: str
    """JSON file of images with all their captions, relative to the root, as is the next."""
    test_file: str
    min_word_count: int = 4
    """As in `KarpathyConfig`."""
    max_val_images: int = 0
    """As in `KarpathyConfig`."""
    image: ImageConfig = field(default_factory=ImageConfig)

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not self.train_files:
            raise ConfigError("train_files must name at least one file")
        _check_counts(self.min_word_count, self.max_val_images)

    def with_root(self, root: str) -> XvlmJsonConfig:
        """The same data in another folder."""
        return replace(self, root=root)


def _check_counts(min_word_count: int, max_val_images: int) -> None:
    if min_word_count < 1:
        raise ConfigError(f"min_word_count must be at least 1, got {min_word_count}")
    if max_val_images < 0:
        raise ConfigError(f"max_val_images must be 0 (all) or more, got {max_val_images}")


DataConfig = KarpathyConfig | IdMappedConfig | XvlmJsonConfig | ScenesConfig | RegionsConfig
"""Told apart by `format`. `image` is None where features are computed already, `root` where no file is read."""
