"""The forward pass of a step: the whole batch at once, or this process's part of it in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor, nn

from goal_core.data import Batch
from goal_core.errors import ConfigError
from goal_core.models import Heads, Pairs, Share
from goal_core.models.batch_rows import in_chunks
from goal_core.training.plan import UnitPlan


def share_of(unit: UnitPlan, heads: Heads) -> Share:
    """What this process encodes of each batch of a unit.

    Raises:
        ConfigError: the model's batch normalisation needs the whole batch, but the unit would split it.
    """
    share = Share(chunk=unit.stage.micro_batch)
    if share.chunk and needs_whole_batch(heads):
        raise ConfigError(
            f"micro_batch={share.chunk}: {unit.model.framework} on precomputed regions normalises by the statistics of "
            "whole batches, which cannot be split"
        )
    return share


def needs_whole_batch(heads: Heads) -> bool:
    """Whether heads use statistics of the batch in training. Backbones do so only in `legacy_quirk`."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in heads.modules())


def encode_batch(encode: Callable[..., Pairs], inputs: Tensor, batch: Batch, share: Share) -> Pairs:
    """Encode a batch for a step.

    Args:
        encode: maps inputs, region lengths, tokens and caption lengths to pairs.
        inputs: of this process's rows, as a step takes them.
        batch: all captions, on the device.
        share: what of the batch to encode, and how much at a time.

    Returns:
        The pairs of this process's rows.
    """
    rows = share.rows(len(batch))
    captions = [
        None if tensor is None else tensor[rows.slice] for tensor in (batch.region_lengths, batch.tokens, batch.lengths)
    ]
    return replace(Pairs.joined(in_chunks(encode, rows, share.chunk, inputs, *captions)), share=share)
