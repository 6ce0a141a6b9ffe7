"""The interface of a model: the heads that every framework trains, and the encoder they form with a backbone.

With it come sequences of different lengths: their masks, and themselves without padding, made without waiting for the
device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from goal_sweep.goal_core.basics.devices import send, set_arithmetic_of
from goal_sweep.goal_core.data import Split
from goal_sweep.goal_core.models.backbones import ImageBackbone


def pack(rows_BL: Tensor, lengths_B: Tensor) -> PackedSequence:
    """What `pack_padded_sequence` gives for rows (B, L) or (B, L, W), ``batch_first`` and not sorted, bit for bit.

    That function copies the order of the sequences to the device in a way that waits for all that the device has to do.
    """
    sorted_B, order_B = torch.sort(lengths_B, descending=True)
    here, back = send(order_B, rows_BL.device), send(order_B.argsort(), rows_BL.device)
    packed = pack_padded_sequence(rows_BL.index_select(0, here), sorted_B, batch_first=True)
    return PackedSequence(packed.data, packed.batch_sizes, here, back)


def length_mask(lengths_B: Tensor, longest: int, device: torch.device) -> Tensor:
    """Whether each position of a padded row is before the row's end, (B, longest) bool on ``device``."""
    return torch.arange(longest, device=device) < send(lengths_B, device)[:, None]


def attention_mask(lengths_B: Tensor, longest: int, device: torch.device) -> Tensor:
    """Which of a caption's positions a BERT may attend to, (B, 1, 1, longest) bool on ``device``.

    In this shape transformers takes a mask as it is; for one in two dimensions it waits for the device.
    """
    return length_mask(lengths_B, longest, device)[:, None, None, :]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterGroup:
    """Parameters that share a learning rate."""

    name: str
    """Such as `heads`, `bert`, `backbone`."""
    parameters: tuple[nn.Parameter, ...]
    lr_scale: float = 1.0
    """Factor of the stage's learning rate."""
    decay: bool = True
    """Whether the stage's weight decay applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A batch of B pairs in the joint space; row i of the images belongs to row i of the texts."""

    image_BD: Tensor  # noqa: N815  # shape suffix
    """Unit vectors, (B, D)."""
    text_BD: Tensor  # noqa: N815  # shape suffix
    """Unit vectors, (B, D)."""
    context: tuple[Tensor, ...] = ()
    """What the framework's own loss needs besides the embeddings: tensors with B rows each."""
    chunk: int = 0
    """Pairs that were encoded at a time, so that the framework's own loss is computed likewise; 0: all."""


class Heads(nn.Module):
    """Everything that trains except the image backbone.

    A framework sets the two encoders `image` and `text`, and overrides the methods in which it differs. Random draws
    use torch's global generators, which hold the cell's own stream during a step.
    """

    image: nn.Module
    text: nn.Module
    masks_same_image: ClassVar[bool] = False
    """Whether pairs that show the same image are excluded as negative pairs."""
    scales_objective: bool = False
    """Whether the trainer is to give the objective's gradient on the embeddings the size of :meth:`replaced_loss`'s."""
    rerank_top: int = 0
    """Evaluation re-ranks this many nearest candidates by a score of the framework's own; 0 ranks by similarity."""

    def encode_images(self, features: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Joint-space unit vectors (B, D) of pooled features (B, F), or of cells or regions (B, R, F).

        Of the R rows `lengths_B` (B,), int64 on the CPU, are not padding; None: all.
        """
        embeddings: Tensor = self.image(features, lengths_B)
        return embeddings

    def encode_texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Joint-space unit vectors (B, D) of int64 ids (B, L), padded with 0, and their numbers (B,), on the CPU."""
        embeddings: Tensor = self.text(tokens_BL, lengths_B)
        return embeddings

    def forward_pairs(
        self, features: Tensor, image_lengths_B: Tensor | None, tokens_BL: Tensor, lengths_B: Tensor
    ) -> Pairs:
        """Encode a batch for a step; arguments as those of the encoders."""
        image_BD = self.encode_images(features, image_lengths_B)
        return Pairs(image_BD=image_BD, text_BD=self.encode_texts(tokens_BL, lengths_B))

    def total_loss(self, surrogate: Tensor, pairs: Pairs, ids_B: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a step, given the objective's scalar, and the framework's own values to log, on the device."""
        return surrogate, {}

    def replaced_loss(self, image_BD: Tensor, text_BD: Tensor, ids_B: Tensor) -> Tensor:
        """The loss that the objective stands for, as in the published sum; only of heads that :attr:`scales_objective`.

        Row i of the unit vectors (B, D) belongs to row i; pairs of the same image have equal ids (B,).
        """
        raise NotImplementedError

    def take_gradient_norms(self) -> dict[str, Tensor]:
        """Norms to log of the gradients that each loss of the step sent, scalars on the device, after backward."""
        return {}

    def stacked(self, tensors: Mapping[str, Tensor]) -> Heads:
        """The encoders of C such heads at once; only where the framework stacks heads (`Framework.stacks_heads`).

        Given the same inputs for all cells they return unit vectors (C, B, D), and draw no random numbers.
        `forward_pairs` and `total_loss` are those of this class. `self` is one of the C, or like them; its own tensors
        are not used.

        Args:
            tensors: the heads' parameters by name, each with the cells in front, (C, ...). They have no buffers.
        """
        raise NotImplementedError

    def parameter_groups(self, bert_lr_scale: float) -> list[ParameterGroup]:
        """The parameters, each in one group, in an order that never changes (checkpoints number them).

        If `text` has an `encoder`, that has the learning-rate factor.
        """
        encoder = getattr(self.text, "encoder", None)
        if not isinstance(encoder, nn.Module):
            return [ParameterGroup(name="heads", parameters=tuple(self.parameters()))]
        inside = {id(parameter) for parameter in encoder.parameters()}
        others = tuple(parameter for parameter in self.parameters() if id(parameter) not in inside)
        bert = ParameterGroup(name="bert", parameters=tuple(encoder.parameters()), lr_scale=bert_lr_scale)
        return [ParameterGroup(name="heads", parameters=others), bert]

    def backbone_groups(self, backbone: nn.Module, lr_scale: float) -> list[ParameterGroup]:
        """The image backbone's parameters, where the stage trains them, in an order that never changes."""
        own = tuple(getattr(backbone, "own", {}).values())
        others = tuple(one for one in backbone.parameters() if not any(one is scale for scale in own))
        groups = [ParameterGroup(name="backbone", parameters=others, lr_scale=lr_scale)]
        scales = ParameterGroup(name="temperature", parameters=own, lr_scale=lr_scale, decay=False)  # as published
        return [*groups, scales] if own else groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Maps images and captions into the joint space; stacked heads, those of C cells at once, put cells in front."""

    heads: Heads
    backbone: ImageBackbone | None
    """None where images arrive as features of a shared frozen backbone, or as precomputed ones."""
    precision: str
    device: torch.device
    compiles: bool = False
    """Whether a text encoder in the heads is compiled."""

    def __post_init__(self) -> None:
        set_arithmetic_of(self.heads, self.precision, compiles=self.compiles)  # a backbone was placed with its own

    def train(self, mode: bool) -> None:
        """Switch heads and backbone to training mode, or to evaluation mode."""
        self.heads.train(mode)
        if self.backbone is not None:
            self.backbone.train(mode)

    def features(self, inputs: Tensor) -> Tensor:
        """The heads' inputs: the backbone's output, or the inputs themselves where there is no backbone here."""
        return inputs if self.backbone is None else self.backbone(inputs)

    def text_features(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """The heads' inputs: vectors of a text tower (B, F), or the captions themselves where there is none here."""
        texts = getattr(self.backbone, "texts", None)
        return tokens_BL if texts is None else texts(tokens_BL, lengths_B)

    def images(self, inputs: Tensor) -> Tensor:
        """Unit vectors (B, D) of pixels (B, 3, S, S); without a backbone, of features (B, F) or (B, R, F)."""
        return self.heads.encode_images(self.features(inputs))

    def texts(self, tokens_BL: Tensor, lengths_B: Tensor) -> Tensor:
        """Unit vectors (B, D) of padded captions."""
        return self.heads.encode_texts(self.text_features(tokens_BL, lengths_B), lengths_B)


def num_features(backbone: ImageBackbone | None, split: Split) -> int:
    """Width of the heads' inputs: of the backbone's features, or of the split's precomputed ones."""
    if backbone is not None:
        return backbone.num_features
    assert split.region_shape is not None
    return split.region_shape[-1]
