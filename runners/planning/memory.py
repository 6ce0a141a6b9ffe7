"""Megabytes that a unit takes of its device and of the disk, counted: nothing is built."""

from __future__ import annotations

from typing import Final

from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.sizes import CAPTION_LENGTH, DataSize, backbone_size
from goal_sweep.sweeps import SweepConfig, Unit

_BASE_MB: Final = {"cpu": 750.0, "cuda": 600.0}
"""Memory of a worker that trains nothing: the resident process, measured; the context of CUDA, assumed."""
_STATES: Final = {"cpu": 6.4, "cuda": 4.0}
"""Copies of a trained weight in fp32: itself, its gradient and Adam's two moments; measured on a CPU, with saving."""
_LIVE: Final = 2.5
"""Inputs and outputs of the largest layer that a pass without gradients holds; measured with residual networks."""
_KEPT_PER_WORD: Final = 10
"""Numbers of the embedding's width that a text encoder keeps for each word of a caption until the backward pass."""


def memory_mb(unit: Unit, config: SweepConfig, size: DataSize) -> float | None:
    """Peak memory of a unit on its device, within about 30 %; None where the size of its backbone is not known."""
    training, stage, cells = unit.trainings[0], unit.stage, len(unit.trainings)
    model, image, kind = training.cell.model, training.cell.data.image, "cuda" if config.resources.gpus else "cpu"
    if (backbone := backbone_size(model)) is None:
        return None
    heads = framework_of(model).head_size(model, training.cell.data, width=backbone.width, words=size.words)
    chunk, number = stage.micro_batch or stage.batch_size, 2 if training.precision in ("bf16", "fp16") else 4
    held = chunk * CAPTION_LENGTH * max(model.embed_dim, heads.word_width) * _KEPT_PER_WORD * number / 1e6
    # Stacked cells hold their activations at the same time, others one after the other.
    stacks = config.execution.sharing == "heads" or (config.execution.sharing == "auto" and kind == "cuda")
    may = stage.shares_backbone and not stage.micro_batch and framework_of(model).stacks(model)
    common = held * (cells if stacks and may else 1)
    own = 4e-6 * _STATES[kind] * heads.params
    area = 0.0 if image is None else (image.size / backbone.image_size) ** 2 * number / 4
    if stage.trains_backbone:
        own += 4 * _STATES[kind] * backbone.params_m
        common += chunk * backbone.kept_mb * area
    elif image is not None:
        common += 4 * backbone.params_m * (1 if stage.shares_backbone else cells)
        common += chunk * _LIVE * backbone.passing_mb * area
    if unit.features:
        common += 4e-6 * size.images * max(1, stage.feature_views) * backbone.width * heads.regions
    return _BASE_MB[kind] + common + cells * own


def disk_mb(unit: Unit, size: DataSize) -> float | None:
    """Megabytes of the best weights of a unit's trainings, in fp32; None where the backbone's size is not known."""
    cell = unit.trainings[0].cell
    if (backbone := backbone_size(cell.model)) is None:
        return None
    heads = framework_of(cell.model).head_size(cell.model, cell.data, width=backbone.width, words=size.words)
    # A frozen backbone is stored only where no file has its weights.
    stored = unit.stage.trains_backbone or cell.model.backbone.weights == "random"
    return 4e-6 * len(unit.trainings) * (heads.params + stored * backbone.params_m * 1e6)
