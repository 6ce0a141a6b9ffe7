"""Images and captions: datasets in all supported formats, and batches from any step of any epoch.

Other rooms and packages import from here, or from `config` (the settings in sweep files), `formats` and `text`.
Batches read splits, splits read files through the formats; `scenes` generates synthetic data.
"""

from typing import TYPE_CHECKING

from goal_sweep.goal_core.basics.exports import on_first_use

if TYPE_CHECKING:
    from goal_sweep.goal_core.data.batches import Batch, BatchSource
    from goal_sweep.goal_core.data.captions import Captions, EncodedCaptions, captions_of
    from goal_sweep.goal_core.data.config import (
        DataConfig,
        EmbeddingsConfig,
        IdMappedConfig,
        ImageConfig,
        KarpathyConfig,
        PrecompConfig,
        RegionsConfig,
        ScenesConfig,
        SourceConfig,
        XvlmJsonConfig,
    )
    from goal_sweep.goal_core.data.dataset import SPLIT_NAMES, Dataset, Split, index_parts, num_batches
    from goal_sweep.goal_core.data.decoding import DecodedImages
    from goal_sweep.goal_core.data.formats import (
        DataReport,
        Progress,
        SplitCounts,
        check_data,
        index_path,
        open_dataset,
        own_indexes,
        published_counts,
    )
    from goal_sweep.goal_core.data.text import Tokenizer, Vocabulary, tokenize
    from goal_sweep.goal_core.data.transforms import transform_of
else:
    __getattr__ = on_first_use(__name__, __file__)
