"""The layouts that datasets come in, and the functions that open and check a dataset of any layout.

`json_files` and `text_files` read the layouts, each with a function from settings to a `Layout`; `opening` makes a
dataset of what they list. `goal_core.data` exports its functions to everybody. Only `goal_core.evaluation`, which
writes feature files, imports this room directly.
"""

from goal_core.data.formats.feature_files import DESCRIPTION, check_origin, write_features
from goal_core.data.formats.features import REGION_AXES, VECTOR_AXES, read_region_header
from goal_core.data.formats.index import own_indexes
from goal_core.data.formats.layout import split_files
from goal_core.data.formats.opening import LAYOUTS, check_data, open_dataset
from goal_core.data.formats.report import DataReport, Finding, Progress, SplitCounts, published_counts
