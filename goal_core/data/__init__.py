"""Images and captions: datasets, vocabulary, and batches that can be started anywhere."""

from goal_core.data.batches import Batch, BatchSource, batch_indices, epoch_order, num_batches, sample_seed
from goal_core.data.config import DataConfig, ImageConfig, KarpathyConfig, ScenesConfig
from goal_core.data.dataset import Dataset, Split, open_dataset
from goal_core.data.formats.check import check_data
from goal_core.data.formats.published import SplitCounts, published_counts
from goal_core.data.images.decoded_images import DecodedImages
from goal_core.data.images.transforms import decode_image, transform_of
from goal_core.data.text.captions import EncodedCaptions
from goal_core.data.text.vocabulary import Vocabulary, tokenize

__all__ = [
    "Batch",
    "BatchSource",
    "DataConfig",
    "Dataset",
    "DecodedImages",
    "EncodedCaptions",
    "ImageConfig",
    "KarpathyConfig",
    "ScenesConfig",
    "Split",
    "SplitCounts",
    "Vocabulary",
    "batch_indices",
    "check_data",
    "decode_image",
    "epoch_order",
    "num_batches",
    "open_dataset",
    "published_counts",
    "sample_seed",
    "tokenize",
    "transform_of",
]
