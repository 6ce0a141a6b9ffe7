"""How large the published datasets are, and where their files come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from goal_core.data.config import DataConfig, IdMappedConfig, KarpathyConfig, RegionsConfig, XvlmJsonConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCounts:
    """Size of one split."""

    images: int
    captions: int
    """With the first five captions of each image."""

    def __str__(self) -> str:
        return f"{self.images:,} images, {self.captions:,} captions"


def _five(images: int) -> SplitCounts:
    return SplitCounts(images=images, captions=5 * images)


PUBLISHED_COUNTS: Mapping[str, Mapping[str, SplitCounts]] = MappingProxyType(
    {
        "coco": {"train": _five(113_287), "val": _five(5_000), "test": _five(5_000)},
        "f30k": {"train": _five(29_000), "val": _five(1_014), "test": _five(1_000)},
    }
)
"""Karpathy's splits of COCO (train with restval) and Flickr30K, five captions an image, by the sweep's `data.name`."""

_XVLM_COCO = {
    "train": SplitCounts(images=113_287, captions=566_747),
    "val": SplitCounts(images=5_000, captions=25_010),
    "test": SplitCounts(images=5_000, captions=25_010),
}
"""X-VLM's files hold every caption of COCO, of which some images have six or seven."""

PUBLISHED_REGIONS = (36, 2048)
"""Bottom-up attention features: the 36 boxes of highest score, 2,048 numbers each (Anderson et al. 2018)."""

_ANNOTATIONS = (
    "annotations: dataset_coco.json and dataset_flickr30k.json are in caption_datasets.zip of Karpathy's page, "
    "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
)
_COCO_IMAGES = (
    "images: http://images.cocodataset.org/zips/train2014.zip and val2014.zip, unpacked to images/train2014 and "
    "images/val2014 (about 20 GB)"
)
_F30K_IMAGES = (
    "images: flickr30k-images, on request through https://shannon.cs.illinois.edu/DenotationGraph/ (about 4 GB)"
)
_FEATURES = (
    "regions: the precomputed bottom-up features of SCAN, https://www.kaggle.com/datasets/kuanghueilee/scan-features "
    "(COCO train 33.4 GB, Flickr30K train 8.6 GB)"
)
_OWN_FEATURES = "or write features of any timm backbone from the images: goal-sweep data features SWEEP --out FOLDER"
_XVLM_JSON = "annotations: the JSON files for fine-tuning on retrieval that X-VLM's README links"
_ID_MAPPING = "id_mapping.json and precomp/: the data folder that VSE-infinity's README links"


def published_counts(config: DataConfig) -> Mapping[str, SplitCounts]:
    """What the published splits hold of a dataset as it is configured.

    Args:
        config: the dataset; told by its name, `coco` or `f30k`.

    Returns:
        Counts by split, in the order train, val, test; empty for datasets that are not published, and without a split
        whose size is not known (such as `test` files of COCO regions, which hold a part of the 5,000 images).
    """
    counts = dict(PUBLISHED_COUNTS.get(config.name, {}))
    if isinstance(config, XvlmJsonConfig) and config.name == "coco":
        counts = dict(_XVLM_COCO)
    if isinstance(config, KarpathyConfig):
        if config.max_captions == 0:
            return {name: split for name, split in counts.items() if config.name != "coco"}
        counts = {
            name: SplitCounts(images=split.images, captions=min(config.max_captions, 5) * split.images)
            for name, split in counts.items()
        }
    if isinstance(config, RegionsConfig | IdMappedConfig) and config.test_file == "test" and config.name == "coco":
        counts.pop("test")
    limit = getattr(config, "max_val_images", 0)
    if counts and limit and limit < counts["val"].images:
        per_image = counts["val"].captions // counts["val"].images
        counts["val"] = SplitCounts(images=limit, captions=limit * per_image)
    return counts


def how_to_obtain(config: DataConfig) -> tuple[str, ...]:
    """Where the files of a dataset come from, a line each; nothing is ever downloaded from there unasked."""
    if isinstance(config, RegionsConfig):
        return (_FEATURES, _OWN_FEATURES) if config.name in PUBLISHED_COUNTS else (_OWN_FEATURES,)
    images = {"coco": _COCO_IMAGES, "f30k": _F30K_IMAGES}.get(config.name)
    if images is None:
        return ()
    if isinstance(config, XvlmJsonConfig):
        return _XVLM_JSON, images
    return (_ID_MAPPING if isinstance(config, IdMappedConfig) else _ANNOTATIONS, images)
