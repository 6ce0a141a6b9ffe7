"""The layouts that datasets come in, one module each, and the functions that open and check a dataset of any layout.

`goal_core.data` exports these functions to everybody. Only `goal_core.evaluation`, which writes feature files, imports
this room directly.
"""

from goal_core.data.formats.caption_files import split_files
from goal_core.data.formats.feature_origin import DESCRIPTION, check_origin
from goal_core.data.formats.format import DataReport, DatasetFormat, Finding, SplitCounts
from goal_core.data.formats.opening import FORMATS, check_data, format_of, open_dataset, published_counts
from goal_core.data.formats.region_files import FeatureFile, read_region_header

__all__ = [
    "DESCRIPTION",
    "FORMATS",
    "DataReport",
    "DatasetFormat",
    "FeatureFile",
    "Finding",
    "SplitCounts",
    "check_data",
    "check_origin",
    "format_of",
    "open_dataset",
    "published_counts",
    "read_region_header",
    "split_files",
]
