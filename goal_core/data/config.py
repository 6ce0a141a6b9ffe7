"""The `data` settings of a sweep file, one class for each format.

Fields that are explained in one class mean the same in the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from goal_core.basics.errors import ConfigError

SHIPPED = "shipped:"
"""In `data.root`, before the name of a dataset that ships with goal-sweep; the same wherever that is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image becomes the square of pixels that the backbone sees."""

    size: int = 224
    """Side of the square, pixels."""
    resize: int = 256
    """The shorter side before the central crop, pixels (in evaluation, and in training with `none`)."""
    augment: Literal["none", "crop_flip", "vse_infty", "xvlm"] = "crop_flip"
    """Training images: `none` as in evaluation; `crop_flip` random resized crop (scale .08-1, ratio 3/4-4/3) and
    horizontal flip, as VSE++; `vse_infty` a random crop (.6-1 of both sides) stretched to the square, and horizontal
    flip; `xvlm` random resized crop (scale .5-1, ratio 3/4-4/3), horizontal flip and RandAugment(2, 7), all bicubic.
    With the last two, evaluation stretches the whole image to the square, and `resize` has no meaning."""
    shrink: int = 0
    """The shorter side, pixels, to which larger images are shrunk before anything else, so that a pack of them is small
    (docs/data_path.md); 0 keeps them. Training then crops the shrunk image, which is another augmentation. With
    `shrink` equal to `resize`, no `jpeg`, and `none` or `crop_flip`, evaluation sees the same pixels as without."""
    jpeg: int = 0
    """Quality, 1 to 100, at which images are compressed as JPEG after `shrink`, for a still smaller pack; 0: they are
    not. This changes pixels."""

    @property
    def augments(self) -> bool:
        """Whether each use of a training image sees other pixels."""
        return self.augment != "none"

    def __post_init__(self) -> None:
        if self.shrink and self.shrink < self.size:
            raise ConfigError(
                f"shrink must be 0 (keep images as they are) or at least size, or images lose detail twice: "
                f"shrink={self.shrink} < size={self.size}"
            )
        if not 0 <= self.jpeg <= 100:
            raise ConfigError(f"jpeg must be 0 (not compressed again) or a quality from 1 to 100, got {self.jpeg}")
        if self.size < 8:
            raise ConfigError(f"image size must be at least 8 pixels, got size={self.size}")
        if self.resize < self.size:
            raise ConfigError(
                f"resize must be at least size, or the crop leaves the image: resize={self.resize} < size={self.size}"
            )


class _InRange:
    """Checks the whole numbers among a dataset's settings, whose names begin with `num_`, `min_` or `max_`."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name in (setting.name for setting in fields(self)):  # type: ignore[arg-type]  # of a dataclass
            if name.startswith(("min_", "num_")) and getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
            if name.startswith("max_") and getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 (all) or more, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpathyConfig(_InRange):
    """Images and captions in Karpathy's JSON layout: COCO, Flickr30K and custom datasets."""

    format: Literal["karpathy"] = "karpathy"
    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`, `emoji`."""
    root: str
    """Folder that holds the annotation file and the images."""
    annotations: str = "auto"
    """Annotation file, relative to the root; `auto` takes the only `dataset_*.json` there."""
    max_captions: int = 5
    """Use at most this many captions of an image, in file order; 0 uses all."""
    min_word_count: int = 4
    """Words that occur fewer times than this in the train and val captions become `<unk>`."""
    vocabulary: Literal["train_val", "legacy"] = "train_val"
    """Captions whose words are counted: `train_val`, those of these two splits that are used; `legacy`, every caption
    in the file, test included, as VSE++'s published code does. For comparison only: it looks at the test words."""
    max_val_images: int = 0
    """Select on the first this many val images only; 0 uses all."""
    image: ImageConfig = field(default_factory=ImageConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenesConfig(_InRange):
    """Synthetic pictures made from a seed, with five paraphrased captions each; nothing to download."""

    root: ClassVar[None] = None
    """The data is generated; there is no folder."""
    most_images: ClassVar[int] = 1_000_000
    """Limit of a split: all its captions are made at once and take a gigabyte of memory per million images."""

    format: Literal["scenes"] = "scenes"
    name: str = "scenes"
    num_train: int = 1000
    num_val: int = 200
    num_test: int = 200
    data_seed: int = 0
    """Seed of the pictures and captions, independent of the cells' seeds."""
    min_word_count: int = 1
    image: ImageConfig = field(default_factory=lambda: ImageConfig(size=64, resize=64, augment="none"))

    def __post_init__(self) -> None:
        _InRange.__post_init__(self)
        for name in ("num_train", "num_val", "num_test"):
            if getattr(self, name) > self.most_images:
                raise ConfigError(f"{name} must be at most {self.most_images:,}, got {getattr(self, name):,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsConfig(_InRange):
    """Precomputed features of each image, R regions or grid cells of F numbers, in the layout of SCAN and VSE-infinity.

    For each of train, dev (which is val) and test: `{split}_ims.npy` (N, R, F), `{split}_caps.txt` with one caption per
    line, those of an image one after the other, and `{split}_ids.txt` with one id per image, all of which then have
    equally many captions, or one per caption.
    """

    image: ClassVar[None] = None
    """The features are computed already, so no image is decoded."""

    format: Literal["regions"] = "regions"
    name: str
    root: str
    """Folder that holds the files, or the parent of the folder `precomp` that does."""
    test_file: Literal["test", "testall"] = "test"
    """Which files are the test split; `testall` holds all 5,000 test images of COCO."""
    min_word_count: int = 4
    max_val_images: int = 0
    """VSE-infinity selects on the first 1,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecompConfig(_InRange):
    """One precomputed vector of F numbers for each image, in the layout of VSE++'s `*_precomp` folders.

    For each of train, dev (which is val) and test: `{split}_ims.npy` (N, F), and `{split}_caps.txt` with one caption
    per line, the captions of an image one after the other. Instead of one row for each image there may be one for each
    caption, as in VSE++'s own files. `{split}_ids.txt` may give one id per image, or one per caption; with the latter,
    images may have different numbers of captions. Text files may be compressed (`.txt.gz`).
    """

    image: ClassVar[None] = None
    """The features are computed already, so no image is decoded."""

    format: Literal["precomp"] = "precomp"
    name: str
    root: str
    """Folder that holds the files; `shipped:NAME` is a dataset that ships with goal-sweep."""
    test_file: Literal["test", "testall"] = "test"
    """As in `RegionsConfig`."""
    max_captions: int = 0
    """Use at most this many captions of an image, in file order; 0 uses all."""
    max_words: int = 0
    """Use only this many first words of each caption, which saves time; 0 uses all."""
    min_word_count: int = 4
    max_val_images: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IdMappedConfig(_InRange):
    """Images with captions and ids as VSE-infinity keeps them; `id_mapping.json` gives the file of each id.

    The root holds `id_mapping.json`, the images' folder, and `precomp/{train,dev,test}_{caps,ids}.txt`.
    """

    format: Literal["id_mapping"] = "id_mapping"
    name: str
    root: str
    """Folder that holds `id_mapping.json`."""
    test_file: Literal["test", "testall"] = "test"
    """As in `RegionsConfig`."""
    min_word_count: int = 4
    max_val_images: int = 0
    image: ImageConfig = field(default_factory=ImageConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmJsonConfig(_InRange):
    """Images with X-VLM's JSON files, one list of records for each split."""

    format: Literal["xvlm_json"] = "xvlm_json"
    name: str
    root: str
    """Folder that holds the JSON files."""
    image_root: str = "images"
    """Folder that holds the records' images, relative to the root."""
    train_files: tuple[str, ...]
    """JSON files of image-caption pairs, relative to the root."""
    val_file: str
    """JSON file of images with all their captions, relative to the root."""
    test_file: str
    """As `val_file`."""
    min_word_count: int = 4
    max_val_images: int = 0
    image: ImageConfig = field(default_factory=ImageConfig)

    def __post_init__(self) -> None:
        if not self.train_files:
            raise ConfigError("train_files must name at least one file")
        _InRange.__post_init__(self)


DataConfig = KarpathyConfig | IdMappedConfig | XvlmJsonConfig | ScenesConfig | RegionsConfig | PrecompConfig
"""`image` is None where features are computed already, `root` is None where no file is read."""
