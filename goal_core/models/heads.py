"""What every framework's trainable part offers the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroup:
    """Parameters that share a learning rate."""

    name: str
    """Such as `heads`, `bert`, `backbone`."""
    parameters: tuple[nn.Parameter, ...]
    lr_scale: float = 1.0
    """Times the stage's learning rate."""
    decay: bool = True
    """Whether the stage's weight decay applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A batch of B pairs in the joint space; row i of the images belongs to row i of the texts."""

    image_BD: Tensor  # noqa: N815  # shape suffix
    """Unit vectors, (B, D)."""
    text_BD: Tensor  # noqa: N815  # shape suffix
    """Unit vectors, (B, D)."""
    context: Any = None
    """What the framework's own loss needs beside the embeddings."""


class Heads(nn.Module):
    """Everything that trains but the image backbone.

    A framework overrides the two encoders, and the other methods where it differs. Steps run in training mode,
    evaluation in evaluation mode. Random draws use torch's global generators, which hold the cell's own stream.
    """

    masks_same_image: ClassVar[bool] = False
    """Whether pairs of one image count as no negatives of each other."""
    rerank_top: int = 0
    """Evaluation ranks this many of the nearest anew by a score of the framework's own; 0 ranks by similarity alone."""

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Joint-space unit vectors.

        Args:
            features: what the backbone gives, (B, F); or cells or regions of each image, (B, R, F).
            lengths_B: how many of the R are there, (B,) int64 on the CPU, the rest being zeros; None: all.

        Returns:
            (B, D).
        """
        raise NotImplementedError

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Joint-space unit vectors (B, D).

        Args:
            tokens_BL: int64 ids, (B, L), padded with 0 after each caption's end.
            lengths_B: int64 number of ids of each caption, (B,), on the CPU, each at least 1.
        """
        raise NotImplementedError

    def forward_pairs(
        self, features: Tensor, image_lengths_B: Tensor | None, tokens_BL: Tensor, lengths_B: Tensor
    ) -> Pairs:
        """Encode a batch for a step; arguments as those of the encoders."""
        return Pairs(
            image_BD=self.encode_images(features, image_lengths_B), text_BD=self.encode_texts(tokens_BL, lengths_B)
        )

    def total_loss(self, surrogate: Tensor, pairs: Pairs, ids_B: Tensor) -> tuple[Tensor, dict[str, float]]:
        """The loss of a step, and what there is to log of it beside the objective's own figures.

        Args:
            surrogate: the scalar whose gradient is the objective's.
            pairs: what :meth:`forward_pairs` gave.
            ids_B: equal for pairs of the same image, (B,) int64.
        """
        return surrogate, {}

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """The parameters, each in one group, in an order that never changes (checkpoints number them).

        Args:
            bert_lr_scale: of a pretrained text encoder, where there is one.
        """
        return [ParameterGroup(name="heads", parameters=tuple(self.parameters()))]

    def backbone_groups(self, backbone: nn.Module, lr_scale: float) -> list[ParameterGroup]:
        """The image backbone's parameters, where the stage trains them, in an order that never changes.

        Args:
            backbone: the cell's own.
            lr_scale: of the backbone.
        """
        return [ParameterGroup(name="backbone", parameters=tuple(backbone.parameters()), lr_scale=lr_scale)]


class RerankingHeads(Heads):
    """Heads that also score a pair by looking at image and caption together.

    The two encoders come apart into what a pair's score needs of each side, and the embedding that follows from it.
    """

    def image_tokens(self, features: Tensor) -> Tensor:
        """What the score needs of images, (B, R, F), from what the backbone gives."""
        raise NotImplementedError

    def text_states(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """What the score needs of captions, (B, L, W); arguments as those of :meth:`encode_texts`."""
        raise NotImplementedError

    def embed_images(self, tokens_BRF: Tensor) -> Tensor:
        """Unit vectors (B, D) from :meth:`image_tokens`."""
        raise NotImplementedError

    def embed_texts(self, states_BLW: Tensor) -> Tensor:
        """Unit vectors (B, D) from :meth:`text_states`."""
        raise NotImplementedError

    def match(self, tokens_PRF: Tensor, states_PLW: Tensor, lengths_P: Tensor) -> Tensor:
        """Scores of P pairs, higher for a better match, (P,).

        Args:
            tokens_PRF: the image of each pair, from :meth:`image_tokens`.
            states_PLW: the caption of each pair, from :meth:`text_states`.
            lengths_P: how many of the L states there are of each caption, (P,) int64, on any device.
        """
        raise NotImplementedError

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """See :meth:`Heads.encode_images`."""
        return self.embed_images(self.image_tokens(features))

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """See :meth:`Heads.encode_texts`."""
        return self.embed_texts(self.text_states(tokens_BL, lengths_B))
