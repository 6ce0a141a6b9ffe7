"""The `data` settings of a sweep file, one class for each format. What one class explains means the same in all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, get_args

from goal_sweep.goal_core.basics.ranges import InRange, Range

SHIPPED = "shipped:"
"""In `data.root`, before the name of a dataset that ships with goal-sweep; the same wherever that is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig(InRange):
    """How an image becomes the square of pixels that the backbone sees."""

    size: Annotated[int, Range(at_least=8)] = 224
    """Side of the square, pixels."""
    resize: int = 256
    """The shorter side before the central crop, pixels (in evaluation, and in training with `none` and `clip`)."""
    augment: Literal["none", "clip", "siglip", "crop_flip", "vse_infty", "xvlm"] = "crop_flip"
    """Training images: `none`, `clip` and `siglip` as in evaluation (the last two bicubic, `siglip` stretched to the
    square, as by these models' processors); `crop_flip` random resized crop (scale .08-1, ratio 3/4-4/3) and
    horizontal flip, as VSE++; `vse_infty` a random crop (.6-1 of both sides) stretched to the square, and horizontal
    flip; `xvlm` random resized crop (scale .5-1, ratio 3/4-4/3), horizontal flip and RandAugment(2, 7), all bicubic.
    With the last two and `siglip`, evaluation stretches the whole image to the square, and `resize` has no meaning."""
    shrink: Annotated[int, Range(at_least=0)] = 0
    """The shorter side, pixels, to which larger images are shrunk before anything else, so that a pack of them is small
    (docs/performance.md); 0 keeps them. Training crops the shrunk image, which is another augmentation. Where it equals
    `resize`, with `none`, `clip` or `crop_flip`, evaluation sees the same pixels."""

    @property
    def augments(self) -> bool:
        """Whether each use of a training image sees other pixels."""
        return self.augment not in ("none", "clip", "siglip")

    def problems(self) -> Iterator[str]:
        """Sizes in which an image would lose what the crop needs."""
        if 0 < self.shrink < self.size:
            why = f"or images lose detail twice: shrink={self.shrink} < size={self.size}"
            yield f"shrink must be 0 (keep images as they are) or at least size, {why}"
        if self.resize < self.size and self.augment in ("none", "clip", "crop_flip"):
            yield f"resize must be at least size, or the crop leaves the image: resize={self.resize} < size={self.size}"


Count = Annotated[int, Range(at_least=1)]
Limit = Annotated[int, Range(at_least=0)]
"""0: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Captioned(InRange):
    """Data with captions in words that are read from files."""

    name: str
    """The dataset's name in tables and in MLflow, such as `coco`, `f30k`, `emoji`."""
    root: str
    """Folder that holds the files, or the parent of the folder `precomp` that does; `shipped:NAME` is a dataset that
    ships with goal-sweep."""
    min_word_count: Count = 4
    """Words that occur fewer times than this in the train and val captions become `<unk>`. Models that
    bring a tokenizer, such as CLIP, ignore it."""
    max_val_images: Limit = 0
    """Select on the first this many val images only, as VSE-infinity on 1,000; 0 uses all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TextFiles(_Captioned):
    """Captions, one a line, and ids in `{train,dev,test}_{caps,ids}.txt`; `dev` is val."""

    test_file: Literal["test", "testall"] = "test"
    """Which files are the test split; `testall` holds all 5,000 test images of COCO."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KarpathyConfig(_Captioned):
    """Images and captions in Karpathy's JSON layout: COCO, Flickr30K and custom datasets."""

    format: Literal["karpathy"] = "karpathy"
    annotations: str = "auto"
    """Annotation file, relative to the root; `auto` takes the only `dataset_*.json` there."""
    max_captions: Limit = 5
    """Use at most this many captions of an image, in file order; 0 uses all."""
    vocabulary: Literal["train_val", "legacy"] = "train_val"
    """Captions whose words are counted: `train_val`, those of these two splits that are used; `legacy`, every caption
    in the file, test included, as VSE++'s published code does, for comparison only."""
    image: ImageConfig = field(default_factory=ImageConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenesConfig(InRange):
    """Pictures of two coloured shapes that are drawn, with five captions each: small data to try things on."""

    root: ClassVar[None] = None
    """The data is generated; there is no folder."""

    format: Literal["scenes"] = "scenes"
    name: str = "scenes"
    num_train: Count = 1000
    num_val: Count = 200
    num_test: Count = 200
    min_word_count: Count = 1
    image: ImageConfig = field(default_factory=lambda: ImageConfig(size=64, resize=64, augment="none"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionsConfig(_TextFiles):
    """Precomputed features, R regions or grid cells of F numbers of each image, as SCAN and VSE-infinity keep them.

    They are in `{train,dev,test}_ims.npy` (N, R, F). There is one id per image, all of which then have equally many
    captions, or one per caption.
    """

    image: ClassVar[None] = None
    """The features are computed already, so no image is decoded."""

    format: Literal["regions"] = "regions"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecompConfig(_TextFiles):
    """One precomputed vector of F numbers for each image, as in VSE++'s `*_precomp` folders.

    They are in `{train,dev,test}_ims.npy` (N, F), with a row for each image or, as in VSE++'s own files, for each
    caption. Ids may be left out where all images have equally many captions.
    """

    image: ClassVar[None] = None

    format: Literal["precomp"] = "precomp"
    max_captions: Limit = 0
    """Use at most this many captions of an image, in file order; 0 uses all."""
    max_words: Limit = 0
    """Use only this many first words of each caption, which saves time; 0 uses all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdMappedConfig(_TextFiles):
    """Images with captions and ids as VSE-infinity keeps them; `id_mapping.json` gives the file of each id."""

    format: Literal["id_mapping"] = "id_mapping"
    image: ImageConfig = field(default_factory=ImageConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingsConfig(InRange):
    """A vector for each image and one for each text, from any encoders.

    For each of train, val and test: `{split}_images.npy` (N, F), `{split}_texts.npy` (M, G), the texts of an image one
    after the other, and `{split}_owners.npy` (M,) with the image of each text, ascending from 0; without it all images
    have M / N texts. Instead, `{split}.safetensors` may hold `images`, `texts` and `owners`, or `{split}.parquet` a row
    for each image, with the columns `image` (a vector) and `texts` (a list of vectors).
    """

    image: ClassVar[None] = None
    min_word_count: ClassVar[int] = 1
    """There are no words."""

    format: Literal["embeddings"] = "embeddings"
    name: str
    root: str
    max_val_images: Limit = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class XvlmJsonConfig(_Captioned):
    """Images with X-VLM's JSON files, one list of records for each split."""

    format: Literal["xvlm_json"] = "xvlm_json"
    image_root: str = "images"
    """Folder that holds the records' images, relative to the root."""
    train_files: tuple[str, ...]
    """JSON files of image-caption pairs, relative to the root."""
    val_file: str
    """JSON file of images with all their captions, relative to the root."""
    test_file: str
    """As `val_file`."""
    image: ImageConfig = field(default_factory=ImageConfig)

    def problems(self) -> Iterator[str]:
        """An empty list of files."""
        if not self.train_files:
            yield "train_files must name at least one file"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig(_Captioned):
    """Images and captions in a layout that is recognised, or that a plugin reads.

    It is a table (.csv, .tsv, .parquet) with the paths of images, a folder that Hugging Face `datasets` saved with its
    images, WebDataset shards (.tar), or a folder of pictures with a text file beside each.
    """

    format: Literal["source"] = "source"
    root: str
    """The table, the shard, or the folder."""
    importer: str = ""
    """A plugin's importer, which reads it; empty recognises what it is."""
    image_column: str = ""
    """Column with the path of each image, relative to the table, or with images; empty takes one with a usual name."""
    caption_column: str = ""
    """Column with a caption, or a list of captions. Rows of the same image come together. Of shards, the key of each
    image's JSON that counts in place of its text file."""
    split_column: str = ""
    """Column with the split; for shards, the key of each image's JSON. `restval` counts as train."""
    val_share: Annotated[float, Range(at_least=0, below=1)] = 0.1
    """Share of the images, or of train alone, that becomes val where none is: exactly, or by a hash above 1,000."""
    test_share: Annotated[float, Range(at_least=0, at_most=1)] = 0.1
    """The same for test; with 1 all are test."""
    max_captions: Limit = 0
    """Use at most this many captions of an image, in file order; 0 uses all."""
    image: ImageConfig = field(default_factory=ImageConfig)


DataConfig = (
    KarpathyConfig
    | IdMappedConfig
    | XvlmJsonConfig
    | SourceConfig
    | ScenesConfig
    | RegionsConfig
    | PrecompConfig
    | EmbeddingsConfig
)
"""`image` is None where features are computed already, `root` is None where no file is read."""
FORMATS: Mapping[str, Any] = {kind.__dataclass_fields__["format"].default: kind for kind in get_args(DataConfig)}
"""The class of each `format`."""
