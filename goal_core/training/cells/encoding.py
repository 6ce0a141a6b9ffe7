"""The forward pass of a step: the whole batch at once, or this process's part of it in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from goal_core.basics.errors import ConfigError
from goal_core.data import Batch
from goal_core.models import Pairs, Share
from goal_core.models.batch_rows import in_chunks
from goal_core.training.plan import UnitPlan


def check_splits(unit: UnitPlan) -> None:
    """Check that the model allows what the unit asks for.

    Raises:
        ConfigError: the model's batch normalisation needs the whole batch, but the unit would split it.
    """
    if unit.stage.needs_whole_batches(unit.data.format) and (unit.stage.micro_batch or unit.processes > 1):
        how = f"{unit.processes} GPUs" if unit.processes > 1 else f"micro_batch={unit.stage.micro_batch}"
        raise ConfigError(
            f"{how}: {unit.model.framework} normalises here by the statistics of whole batches, which cannot be split"
        )


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
    kind: list[Pairs] = []

    def columns(*tensors: Tensor | None) -> tuple[Tensor, ...]:
        pairs = encode(*tensors)
        if not kind:  # that of the first pass, for those of the second hold activations
            kind.append(pairs)
        return pairs.columns()

    encoded = in_chunks(columns, rows, share.chunk, inputs, *captions)
    return replace(kind[0].with_columns(encoded), share=share)
