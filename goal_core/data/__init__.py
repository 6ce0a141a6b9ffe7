"""Images and captions: datasets, vocabulary, and batches that can be started anywhere."""

from goal_core.data.batches import Batch, BatchSource, batch_indices, epoch_order, num_batches, sample_seed
from goal_core.data.config import DataConfig, ImageConfig, KarpathyConfig, ScenesConfig
from goal_core.data.dataset import Dataset, Split, open_dataset
from goal_core.data.images.decoded_images import DecodedImages
from goal_core.data.images.transforms import decode_image, eval_image, train_image
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
    "Vocabulary",
    "batch_indices",
    "decode_image",
    "epoch_order",
    "eval_image",
    "num_batches",
    "open_dataset",
    "sample_seed",
    "tokenize",
    "train_image",
]
