"""Images and captions: datasets, vocabulary, and batches that can be started anywhere."""

from goal_core.data.batches import Batch, BatchSource, batch_indices, epoch_order, num_batches, sample_seed
from goal_core.data.captions import EncodedCaptions
from goal_core.data.config import DataConfig, ImageConfig, KarpathyConfig, ScenesConfig
from goal_core.data.dataset import Dataset, Split, open_dataset
from goal_core.data.images import decode_image, eval_image, train_image
from goal_core.data.squares import SquareImages
from goal_core.data.vocabulary import Vocabulary, tokenize

__all__ = [
    "Batch",
    "BatchSource",
    "DataConfig",
    "Dataset",
    "EncodedCaptions",
    "ImageConfig",
    "KarpathyConfig",
    "ScenesConfig",
    "Split",
    "SquareImages",
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
