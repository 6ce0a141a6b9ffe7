"""Open and check a dataset of any format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from goal_core.data.config import DataConfig
from goal_core.data.dataset import Dataset
from goal_core.data.formats.format import DataReport, DatasetFormat, Progress, SplitCounts
from goal_core.data.formats.id_mapping import IdMapping
from goal_core.data.formats.karpathy import Karpathy
from goal_core.data.formats.precomp import Precomp
from goal_core.data.formats.regions import Regions
from goal_core.data.formats.scenes import Scenes
from goal_core.data.formats.xvlm_json import XvlmJson

FORMATS: dict[str, DatasetFormat[Any]] = {
    layout.name: layout for layout in (Karpathy(), IdMapping(), XvlmJson(), Scenes(), Regions(), Precomp())
}
"""By the name in sweep files."""


def format_of(config: DataConfig) -> DatasetFormat[Any]:
    """The format of a dataset."""
    return FORMATS[config.format]


def open_dataset(config: DataConfig) -> Dataset:
    """Read what a sweep file's `data` names and check it in full: layout, captions, splits, and that all files exist.

    No image is decoded. COCO (123,287 images) opens in a few seconds, most of which parse its JSON file.

    Raises:
        DataError: a folder or file is missing, the annotations are in the wrong layout, an image has no caption or is
            listed twice, a split is empty, or precomputed features are cut short or do not fit their captions. The
            message is one line that says which.
    """
    return format_of(config).open(config)


def check_data(config: DataConfig, *, quick: bool = False, progress: Progress = lambda done, total: None) -> DataReport:
    """Check everything that a sweep needs of its data, and report faults without raising; nothing is downloaded.

    Args:
        config: the dataset.
        quick: check only that images and regions are present and have the right size; do not read them.
        progress: called while they are read.
    """
    layout, report = format_of(config), DataReport(name=config.name)
    layout.check(config, report)
    dataset = report.attempt("dataset", lambda: open_dataset(config)) if report.complete else None
    if dataset is not None and quick:
        report.note("content", "ok", "not read (--quick)")
    elif dataset is not None:
        report.read(dataset, progress)
    if not report.complete:
        report.obtain = layout.how_to_obtain(config)
    return report


def published_counts(config: DataConfig) -> Mapping[str, SplitCounts]:
    """Size of the published splits of `coco` and `f30k`, counting the images and captions that the settings use.

    Empty for datasets of other names; a split whose size is not known is left out.
    """
    return format_of(config).published_counts(config)
