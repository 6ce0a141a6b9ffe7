"""The peak memory of a unit on its device, counted: weights, gradients, optimiser states, activations and data.

Of several GPUs it is that of the first, which also evaluates.

What autograd keeps of a backbone's forward pass is measured for each backbone (`calibration`); everything else follows
from the sizes of the model. What frameworks take for themselves is added as a constant.
"""

from __future__ import annotations

from typing import Final, Literal

from runners.launch.calibration import CAPTION_LENGTH, NUM_REGIONS
from runners.launch.price import DataSize, backbone_speed, head_size, unit_path
from sweeps import SweepConfig, Unit

BASE_MB: Final = {"cpu": 750.0, "cuda": 600.0}
"""Memory of a worker that trains nothing: on a CPU the resident process with torch, on a GPU the CUDA context and the
kernels' workspaces. The first is measured, the second assumed."""
_STATES: Final = {"cpu": 6.4, "cuda": 4.0}
"""Copies of a trained weight: itself, its gradient and Adam's two moments, all in fp32. On a CPU, what the optimiser
and saving take for a moment counts too; there the number is measured."""
_LIVE: Final = 2.5
"""Inputs and outputs of the largest layer that a pass without gradients holds; measured with residual networks."""
_RECOMPUTED: Final = 0.5
"""Share of a backbone's activations that are held at most where its blocks run again; measured with resnet50
(benchmarks/RESULTS.md)."""
_KEPT_PER_WORD: Final = 10
"""Numbers of the embedding's width that a text encoder keeps for each word of a caption until the backward pass."""
_RANKED: Final = 24
"""Bytes that VSE-infinity's pooling holds for each dimension of each cell or region of a batch, whose values it sorts:
the values before and after, and their places. Measured with stacks, padded and full (20 to 26)."""
_SIMILARITIES: Final = 1.5
"""Copies of a batch's similarities that the objective holds in fp32; measured at 4,096 pairs (docs/planning.md)."""
_EVALUATED: Final = 64
"""Images that are embedded at a time in evaluation."""


def unit_memory_mb(unit: Unit, config: SweepConfig, size: DataSize) -> float | None:
    """Peak memory of a unit in megabytes; None without a calibration of its backbone."""
    cell, stage, cells = unit.trainings[0].cell, unit.stage, len(unit.trainings)
    speed = backbone_speed(cell.model)
    if speed is None:
        return None
    kind: Literal["cpu", "cuda"] = "cuda" if config.resources.gpus else "cpu"
    processes = max(1, int(config.resources.gpus))
    rows = -(-stage.batch_size // processes)
    chunk = min(stage.micro_batch or rows, rows)
    bytes_each = 4 if unit.trainings[0].precision == "fp32" else 2
    heads = head_size(cell.model, cell.data, width=speed.width, words=size.words).params
    width = max(cell.model.embed_dim, cell.model.bert.width * cell.model.bert.layers if _has_bert(unit) else 0)
    text = 1.0 * chunk * CAPTION_LENGTH * width * _KEPT_PER_WORD * bytes_each
    pixels = 0 if cell.data.image is None else cell.data.image.size**2
    area = 0.0 if cell.data.image is None else pixels / speed.image_size**2
    kept, passing = (1e6 * mb * area * bytes_each / 4 for mb in (speed.kept_mb, speed.passing_mb))

    own: float = 4 * _STATES[kind] * heads
    common = size.val[1] * cell.model.embed_dim * 4.0
    path = unit_path(unit, config)
    # Cells that step one after the other hold activations one at a time.
    similarities = _SIMILARITIES * 4 * stage.batch_size**2
    common += (text + _ranked(unit, chunk) + similarities) * (cells if path.name == "heads" else 1)
    if stage.trains_backbone:
        own += 4e6 * _STATES[kind] * speed.params_m
        common += chunk * kept * (_RECOMPUTED if stage.recompute else 1.0)
    elif cell.data.image is not None:
        copies = 1 if stage.shares_backbone else cells
        common += 4e6 * speed.params_m * copies + max(chunk, _EVALUATED) * _LIVE * passing
    cells_each = NUM_REGIONS[0] if cell.model.framework != "vsepp" else 1
    if stage.shares_backbone and (cell.data.image is None or cell.data.image.augment == "none"):
        common += 4 * size.images * speed.width * cells_each
    common += 4 * 3 * pixels * max(rows, _EVALUATED)
    return BASE_MB[kind] + (common + cells * own) / 1e6


def _ranked(unit: Unit, images: int) -> float:
    """Bytes of pooling the sets of so many images by one cell."""
    model, data = unit.trainings[0].cell.model, unit.trainings[0].cell.data
    if model.framework != "vse_infty":
        return 0.0
    each = NUM_REGIONS[0] if data.image is None else (data.image.size // 32) ** 2
    return 1.0 * _RANKED * images * each * model.embed_dim


def _has_bert(unit: Unit) -> bool:
    return unit.trainings[0].cell.model.framework != "vsepp"
