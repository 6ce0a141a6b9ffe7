"""Images and captions: datasets in all supported formats, and batches from any step of any epoch.

Batches read splits, and splits read files through the formats.
"""

from goal_sweep.goal_core.data.config import DataConfig, ImageConfig
from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Dataset, Split, index_parts, num_batches
from goal_sweep.goal_core.data.formats.report import DataReport, Progress, SplitCounts, published_counts
