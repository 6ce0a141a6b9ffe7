"""The interface between a published system and the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from goal_core.data import DataConfig
    from goal_core.data.text import PairAugment, Tokenizer
    from goal_core.models import Heads, ImageBackbone, ModelConfig
    from goal_core.models.frameworks.sizes import HeadSize


class Framework(Protocol):
    """One published system: how its parts are built. The parts define their own computation (:class:`Heads`)."""

    @property
    def name(self) -> str:
        """Its name in sweep files."""

    @property
    def uses(self) -> frozenset[str]:
        """The fields of `ModelConfig` that it reads; only these enter the cell id."""

    @property
    def stacks_heads(self) -> bool:
        """Whether the heads of several cells can run as batched products (`Heads.stacked`)."""

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Check that the model and the data go together.

        Raises:
            ConfigError: they do not; the message is one line.
        """

    def weights_id(self, model: ModelConfig) -> str:
        """An identifier of the initial weights of the backbone and the text encoder, by content.

        Raises:
            WeightsError: a file is missing.
        """

    def check_weights(self, model: ModelConfig, data: DataConfig) -> None:
        """Load the initial weights once and discard them, so that a mismatch shows before anything is scheduled.

        Raises:
            WeightsError: they cannot be found, or do not fit.
        """

    def tokenizer(self, model: ModelConfig, captions: Sequence[str], min_word_count: int) -> Tokenizer:
        """Build the tokenizer of the captions.

        Args:
            model: the model.
            captions: the train and val captions.
            min_word_count: threshold of a vocabulary that is built from them.
        """

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        """The image backbone with its initial weights; None where the data already consists of features."""

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> Heads:
        """Everything else that trains.

        Args:
            model: the model.
            num_features: width of the backbone's features, or of the precomputed ones.
            tokenizer: of the captions.
            seed: draws the initial weights that no file contains.
        """

    def head_size(self, model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
        """The size of the text encoder and heads, counted as matrix products: without biases and norms.

        Args:
            model: the model.
            data: the data's settings.
            width: numbers that the backbone gives for an image or a region.
            words: words of the vocabulary.
        """

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        """How training pairs are augmented besides the image's own augmentation; None if they are not."""
