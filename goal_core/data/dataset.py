"""A dataset: three splits and a fingerprint of everything a model sees of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goal_core.data.config import DataConfig, IdMappedConfig, KarpathyConfig, RegionsConfig, XvlmJsonConfig
from goal_core.data.formats.id_mapping import load_id_mapped
from goal_core.data.formats.karpathy import every_caption, load_karpathy
from goal_core.data.formats.regions import load_regions
from goal_core.data.formats.xvlm_json import load_xvlm_json
from goal_core.data.scenes.scenes import make_scenes
from goal_core.data.split import SPLIT_NAMES, Split

__all__ = ["SPLIT_NAMES", "Dataset", "Split", "open_dataset"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """The splits that a cell trains, selects and reports on."""

    name: str
    """As in the sweep file; shown in tables, and no part of the fingerprint."""
    splits: Mapping[str, Split]
    """`train`, `val` and `test`, none of them empty."""
    fingerprint: str
    """16 hexadecimal digits that change when anything a model sees of the data changes: which images and captions,
    their splits and order, decoding, resizing, augmentation and the word threshold. Paths are no part of it."""
    corpus: tuple[str, ...] = ()
    """Captions that the vocabulary is made of, where they are others than those of train and val."""

    @property
    def vocabulary_captions(self) -> Sequence[str]:
        """Captions that the vocabulary is made of."""
        return self.corpus or [*self.splits["train"].captions, *self.splits["val"].captions]


def open_dataset(config: DataConfig) -> Dataset:
    """Read what a sweep file's `data` names and check it in full: layout, captions, splits, and that all files exist.

    No image is decoded. COCO (123,287 images) opens in a few seconds, most of them the JSON file's.

    Raises:
        DataError: a folder or file is missing, the annotations are of the wrong layout, an image has no caption or is
            listed twice, a split is empty, or precomputed features are cut short or do not fit their captions. One line
            that says which.
    """
    corpus: tuple[str, ...] = ()
    if isinstance(config, KarpathyConfig):
        splits, fingerprint = load_karpathy(config)
        if config.vocabulary == "legacy":
            corpus = every_caption(config)
    elif isinstance(config, IdMappedConfig):
        splits, fingerprint = load_id_mapped(config)
    elif isinstance(config, XvlmJsonConfig):
        splits, fingerprint = load_xvlm_json(config)
    elif isinstance(config, RegionsConfig):
        splits, fingerprint = load_regions(config)
    else:
        splits, fingerprint = make_scenes(config)
    return Dataset(name=config.name, splits=splits, fingerprint=fingerprint, corpus=corpus)
