"""The layouts that datasets come in, and the functions that open and check a dataset of any layout.

Importers read the layouts: functions from settings to a `Layout`. `opening` makes an index of what they list, and of
the index a dataset. `goal_core.data` exports the functions for everybody. Only `goal_core.evaluation`, which writes
folders of features, imports this room directly.
"""

from goal_sweep.goal_core.data.formats.features import REGION_AXES, VECTOR_AXES, read_region_header
from goal_sweep.goal_core.data.formats.image_files import decode_image, to_rgb
from goal_sweep.goal_core.data.formats.index import index_path, own_indexes
from goal_sweep.goal_core.data.formats.layout import FILE_WORDS, PICTURES, SHIPPED_FOLDER, precomp_folder
from goal_sweep.goal_core.data.formats.opening import LAYOUTS, check_data, open_dataset
from goal_sweep.goal_core.data.formats.report import DataReport, Finding, Progress, SplitCounts, published_counts
