"""Images and captions: datasets in all supported formats, and batches from any step of any epoch.

Other rooms and packages import from here, or from `config` (the settings in sweep files), `formats` and `text`.
Batches read splits, splits read files through the formats; `scenes` generates synthetic data.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.data.batches import Batch, BatchSource
    from goal_sweep.goal_core.data.captions import Captions, EncodedCaptions, captions_of
    from goal_sweep.goal_core.data.config import DataConfig, ImageConfig
    from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Dataset, Split, index_parts, num_batches
    from goal_sweep.goal_core.data.decoding import DecodedImages
    from goal_sweep.goal_core.data.formats.index import index_path, own_indexes
    from goal_sweep.goal_core.data.formats.opening import check_data, open_dataset
    from goal_sweep.goal_core.data.formats.report import DataReport, Progress, SplitCounts, published_counts
    from goal_sweep.goal_core.data.text.vocabulary import Vocabulary, tokenize
else:
    __getattr__ = on_first_use(__name__, __file__)
