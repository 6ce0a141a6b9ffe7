"""What a framework is to the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from goal_core.data.config import DataConfig
from goal_core.data.text.pair_augment import PairAugment
from goal_core.data.text.tokenizer import Tokenizer
from goal_core.models.backbones import ImageBackbone
from goal_core.models.config import ModelConfig
from goal_core.models.heads import Heads


class Framework(Protocol):
    """One published system. It says how its parts are built; what they do is theirs (:class:`Heads`)."""

    @property
    def name(self) -> str:
        """As in sweep files."""

    @property
    def uses(self) -> frozenset[str]:
        """The fields of `ModelConfig` that count for it; they, and only they, enter the cell id."""

    def check(self, model: ModelConfig, data: DataConfig) -> None:
        """Refuse what does not go together.

        Raises:
            ConfigError: one line that says what.
        """

    def weights_id(self, model: ModelConfig) -> str:
        """What the first weights of the backbone and the text encoder are, by content.

        Raises:
            WeightsError: a file is not there.
        """

    def check_weights(self, model: ModelConfig, data: DataConfig) -> None:
        """Load the first weights once and throw them away, so that a misfit shows before anything is scheduled.

        Raises:
            WeightsError: they cannot be had, or do not fit.
        """

    def tokenizer(self, model: ModelConfig, captions: Sequence[str], min_word_count: int) -> Tokenizer:
        """What turns captions into ids.

        Args:
            model: the model.
            captions: the train and val captions.
            min_word_count: threshold of a vocabulary that is made of them.
        """

    def backbone(self, model: ModelConfig, data: DataConfig, seed: int) -> ImageBackbone | None:
        """The image backbone with its first weights; None where the data holds features already."""

    def heads(self, model: ModelConfig, *, num_features: int, tokenizer: Tokenizer, seed: int) -> Heads:
        """Everything else that trains.

        Args:
            model: the model.
            num_features: width of the backbone's features, or of the precomputed ones.
            tokenizer: of the captions.
            seed: fixes the first weights that no file gives.
        """

    def augment(self, model: ModelConfig, tokenizer: Tokenizer, seed: int) -> PairAugment | None:
        """How training pairs are augmented beside the image's own augmentation."""
