"""Seconds of a step, and megabytes of a unit, that nobody has measured. They are counted: nothing is built.

A step takes its arithmetic at a card's peak and its memory traffic at its bandwidth, one after the other.
"""

import re
from typing import Final, NamedTuple

from goal_sweep.goal_core.data.dataset import num_batches
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.sizes import CAPTION_LENGTH, DataSize, backbone_size
from goal_sweep.sweeps import ResourceConfig, SweepConfig, Training, Unit

DEFAULT: Final = "A100"
"""The card of a sweep for GPUs of which nothing is known."""
_REACHED: Final = 0.55
"""Share of both peaks that programs reach: measured on an H200 (benchmarks/RESULTS.md). Of published trainings, which
are not compiled, 0.57 to 0.82 on an RTX 3090 and 0.29 to 0.59 on an A100 (tests/runners/planning/test_speeds.py)."""
_LEAST_S: Final = 0.01
"""Seconds of the smallest step: starting the kernels of the heads, the objective and the optimiser."""
_IMAGE_LOAD_S: Final = 0.0036
"""Seconds in which a core of an AMD EPYC server decodes and crops a photograph of 640 x 480 pixels and 160 KB."""
_BASE_MB: Final = {"cpu": 750.0, "cuda": 600.0}
"""Memory of a worker that trains nothing: the resident process, measured; the context of CUDA, assumed."""
_STATES: Final = {"cpu": 6.4, "cuda": 4.0}
"""Copies of a trained weight in fp32: itself, its gradient and Adam's two moments; measured on a CPU, with saving."""
_LIVE: Final = 2.5
"""Inputs and outputs of the largest layer that a pass without gradients holds; measured with residual networks."""
_KEPT_PER_WORD: Final = 10
"""Numbers of the embedding's width that a text encoder keeps for each word of a caption until the backward pass."""


class Card(NamedTuple):
    """The peaks of a device, by its maker's data sheet."""

    name: str
    fp32: float
    """Products in TFLOP/s, without sparsity, as `tf32` and `half`."""
    tf32: float
    half: float
    bandwidth: float
    """Of its memory, in GB/s."""
    memory: float = 0.0
    """In GB; of a card that is sold with several sizes the smallest."""


CARDS: Final = (
    Card("T4", 8.1, 8.1, 65, 300, 16),
    Card("A10G", 31.2, 35, 70, 600, 24),
    Card("L4", 30.3, 60, 121, 300, 24),
    Card("L40S", 91.6, 183, 362, 864, 48),
    Card("RTX 3090", 35.6, 35.6, 71, 936, 24),
    Card("RTX 4090", 82.6, 82.6, 165, 1008, 24),
    Card("A100", 19.5, 156, 312, 1555, 40),
    Card("A100-80G", 19.5, 156, 312, 2039, 80),
    Card("H100", 67, 494, 989, 3350, 80),
    Card("H200", 67, 494, 989, 4800, 141),
    Card("B200", 75, 1125, 2250, 8000, 180),
)


CORE: Final = Card("CPU core", 0.16, 0.16, 0.16, 16)
"""Of a 2.x GHz AMD EPYC server, by the passes of ResNets, ViT and Swin that were measured there, at `_REACHED`."""


def card_named(name: str) -> Card | None:
    """The card that a name of Ray or of the driver means, such as `NVIDIA H100 80GB HBM3`."""
    found = [card for card in CARDS if re.search(rf"\b{card.name.replace(' ', '[ -]?')}\b", name, re.IGNORECASE)]
    return max(found, key=lambda card: len(card.name), default=None)


def step_s(training: Training, size: DataSize, resources: ResourceConfig, card: Card) -> tuple[float, float] | None:
    """Seconds of a step of one training by itself, with its share of the validation, and of decoding the step's images.

    Features that are computed once are not counted. The cells of a unit share what is decoded.

    Args:
        card: the GPU of which `resources` may take a part, or one core of a CPU.

    Returns:
        None where the size of the backbone is not known.
    """
    cell, stage = training.cell, training.stage
    model, image, batch, val = cell.model, cell.data.image, stage.batch_size, size.val
    if (backbone := backbone_size(model)) is None:
        return None
    heads = framework_of(model).head_size(model, cell.data, width=backbone.width, words=size.words)
    # A backward pass counts as two forward passes. A batch in chunks passes forward once more.
    steps, passes = num_batches(size.captions, batch, stage.drop_last), 3 + stage.splits_batches
    loaded = batch if image is not None and not Unit(trainings=(training,)).features else 0
    images, area = float(loaded), 0.0 if image is None else (image.size / backbone.image_size) ** 2
    if stage.trains_backbone:
        images = loaded * passes + val.images / steps
    gmac = images * area * backbone.gmac
    gmac += passes * batch * (heads.image_gmac + heads.caption_gmac + 3 * heads.pair_gmac)
    matched = model.xvlm.rerank_top * (val.images + val.captions) * heads.pair_gmac
    gmac += (val.images * heads.image_gmac + val.captions * heads.caption_gmac + matched) / steps
    is_half = training.precision == "bf16"
    # Each pass writes and reads what autograd would keep. Adam moves eight numbers of four bytes for each weight.
    moved = images * area * 2 * backbone.kept_mb * 1e6 * (0.5 if is_half else 1)
    moved += 32 * (heads.params + stage.trains_backbone * backbone.params_m * 1e6)
    peak = card.half if is_half else card.tf32 if training.precision == "tf32" else card.fp32
    at_peak = (2 * gmac / (1000 * peak) + moved / (1e9 * card.bandwidth)) / (resources.gpus or resources.cpus)
    return max(at_peak / _REACHED, _LEAST_S), loaded * _IMAGE_LOAD_S / max(1, resources.loader_workers)


def memory_mb(unit: Unit, config: SweepConfig, size: DataSize) -> float | None:
    """Peak memory of a unit on its device, within about 30 %; None where the size of its backbone is not known."""
    training, stage, cells = unit.trainings[0], unit.stage, len(unit.trainings)
    model, image, kind = training.cell.model, training.cell.data.image, "cuda" if config.resources.gpus else "cpu"
    if (backbone := backbone_size(model)) is None:
        return None
    heads = framework_of(model).head_size(model, training.cell.data, width=backbone.width, words=size.words)
    chunk, number = stage.micro_batch or stage.batch_size, 2 if training.precision == "bf16" else 4
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
        common += 4e-6 * size.images * backbone.width * heads.regions
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
