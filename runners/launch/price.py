"""Estimate the time and disk space of trainings that have never run, from a calibration and the sizes of their models.

Nothing is built or trained, and torch is not needed. The arithmetic of the text encoders and heads is counted as
multiply-adds of matrix products; everything else counts through the measured constants of `calibration`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from goal_core.data import DataConfig, num_batches
from goal_core.models.config import BertConfig, ModelConfig
from goal_core.training.sharing import UnitPath, path_of
from runners.launch.calibration import (
    BACKBONES,
    BERT_PIECES,
    CAPTION_LENGTH,
    DEVICES,
    IMAGE_LOAD_S,
    NUM_REGIONS,
    BackboneSpeed,
)
from sweeps import SweepConfig, Unit

LAUNCH_BUSY = 0.5
"""Share of the time in which a process starts small kernels that they keep a GPU busy. Assumed, not measured."""
PRECOMPUTED = BackboneSpeed(1, 0.0, NUM_REGIONS[1], 0.0, 0.0, 0.0, 0.0)
"""Features that are part of the data cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSize:
    """How much there is to train on and to evaluate."""

    captions: int
    """Of the training split."""
    images: int
    """Of all splits."""
    val: tuple[int, int]
    """Images and captions of the validation split."""
    words: int
    """Words of the vocabulary, where captions are read word by word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSize:
    """Everything of a model but the backbone; multiply-adds in 1e9, of a forward pass."""

    params: int
    image_gmac: float
    caption_gmac: float
    pair_gmac: float = 0.0
    """Of one image with one caption in a cross encoder."""


class _Seconds(NamedTuple):
    """The device seconds of a unit."""

    total: float
    compute: float
    """Those without waiting for images."""
    launches: float
    """Of these, those of starting small kernels."""


def backbone_speed(model: ModelConfig) -> BackboneSpeed | None:
    """The calibration of a model's backbone; None where it has none."""
    if model.backbone.weights == "precomputed":
        return PRECOMPUTED
    return BACKBONES.get(model.backbone.name.split(".")[0])


def head_size(model: ModelConfig, data: DataConfig, *, width: int, words: int) -> HeadSize:
    """The size of a model's text encoder and heads.

    Args:
        model: the model.
        data: the data's settings.
        width: numbers that the backbone gives for an image or a cell.
        words: words of the vocabulary; a BERT that is not drawn at random has word pieces of its own.
    """
    dim, length = model.embed_dim, CAPTION_LENGTH
    if model.framework == "vsepp":
        gru = 3 * dim * (model.text.word_dim + dim)
        params = width * dim + words * model.text.word_dim + gru + 7 * dim
        return HeadSize(params=params, image_gmac=width * dim / 1e9, caption_gmac=length * gru / 1e9)
    bert = model.bert if model.bert.weights == "random" else BertConfig()
    pieces = words if model.bert.weights == "random" else BERT_PIECES
    layer, inner = 12 * bert.width**2, bert.width
    params = (pieces + 512) * inner + bert.layers * layer + (width + inner) * dim
    cells = (data.image.size // 32) ** 2 if data.image is not None else NUM_REGIONS[0]
    if model.framework == "vse_infty":
        mlp = (width + dim) * dim // 2 if model.backbone.weights == "precomputed" else 0
        image = cells * (width * dim + mlp) / 1e9
        caption = length * (bert.layers * layer + inner * dim) / 1e9
        return HeadSize(params=params + mlp, image_gmac=image, caption_gmac=caption)
    upper = bert.layers - model.xvlm.fusion_layer
    cross = upper * (length * (layer + 2 * inner**2) + cells * 2 * width * inner) / 1e9
    return HeadSize(
        params=params + upper * 2 * inner * (inner + width) + 2 * inner**2,
        image_gmac=width * dim / 1e9,
        caption_gmac=length * model.xvlm.fusion_layer * layer / 1e9,
        pair_gmac=cross,
    )


def disk_mb(units: Sequence[Unit], size: DataSize) -> float | None:
    """Megabytes of the best weights of some trainings, which are stored in fp32; None without a calibration."""
    total = 0.0
    for unit in units:
        model = unit.trainings[0].cell.model
        speed = backbone_speed(model)
        if speed is None:
            return None
        heads = head_size(model, unit.trainings[0].cell.data, width=speed.width, words=size.words).params
        # A frozen backbone is stored only where no file has its weights.
        stored = unit.stage.trains_backbone or model.backbone.weights == "random"
        total += 4 * len(unit.trainings) * (heads + stored * speed.params_m * 1e6)
    return total / 1e6


def computes_features_once(unit: Unit) -> bool:
    """Whether the backbone's features are the same in every epoch; the store then keeps them for all units."""
    image = unit.trainings[0].cell.data.image
    kept = image is not None and (not image.augments or bool(unit.stage.feature_views))
    return unit.stage.shares_backbone and kept


def features_of(unit: Unit) -> str:
    """What a unit's cached features depend on within a sweep: units with the same text share them.

    Pretrained weights are the same for every seed, and so are their features (`goal_core.training.trunk`).
    """
    cell = unit.trainings[0].cell
    backbone = cell.model.backbone
    seed = f" seed {cell.seed}" if backbone.weights == "random" else ""
    return f"{backbone.name} {backbone.weights} {cell.model.init_from}{seed}"


def feature_seconds(unit: Unit, config: SweepConfig, size: DataSize) -> float | None:
    """Seconds of computing the features that the store then keeps, 0 where a unit has none; None without a price."""
    speed = backbone_speed(unit.trainings[0].cell.model)
    if speed is None:
        return None
    passes = size.images * max(1, unit.stage.feature_views)  # too many by the views of evaluation images, which are few
    return passes * _forward_seconds(unit, config, speed) if computes_features_once(unit) else 0.0


def unit_path(unit: Unit, config: SweepConfig) -> UnitPath:
    """How the cells of a unit will run side by side."""
    training = unit.trainings[0]
    return path_of(
        len(unit.trainings),
        sharing=config.execution.sharing_of(unit.stage),
        model=training.cell.model,
        stage=unit.stage,
        precision=training.precision,
        device=_kind(config),
        processes=max(1, int(config.resources.gpus)),
    )


def _kind(config: SweepConfig) -> Literal["cpu", "cuda"]:
    return "cuda" if config.resources.gpus else "cpu"


def _slower(unit: Unit, config: SweepConfig) -> float:
    return DEVICES[_kind(config)].fp32_factor if unit.trainings[0].precision == "fp32" else 1.0


def _forward_seconds(unit: Unit, config: SweepConfig, speed: BackboneSpeed) -> float:
    """Seconds of a backbone's forward pass of one image."""
    image = unit.trainings[0].cell.data.image
    if image is None:
        return 0.0
    image_ms = speed.cuda_ms if config.resources.gpus else speed.cpu_ms / config.resources.cpus
    return image_ms / 1000 * (image.size / speed.image_size) ** 2 * _slower(unit, config)


def unit_seconds(unit: Unit, config: SweepConfig, size: DataSize) -> float | None:
    """Device seconds of a unit, without `feature_seconds`; None without a calibration of its backbone."""
    found = _seconds(unit, config, size)
    return None if found is None else found.total


def unit_busy(unit: Unit, config: SweepConfig, size: DataSize, *, decoded: bool = False) -> float | None:
    """Share of its time in which a unit keeps its GPU busy, 0 to 1; None without a calibration of its backbone.

    It is idle while images are decoded in the training process or are not there yet, and in part while a process starts
    small kernels.

    Args:
        unit: the unit.
        config: its sweep.
        size: of the data.
        decoded: whether the images wait for no processor.
    """
    found = _seconds(unit, config, size)
    if found is None:
        return None
    total = found.compute if decoded else found.total
    return (found.compute - (1 - LAUNCH_BUSY) * found.launches) / total if total else 1.0


def _seconds(unit: Unit, config: SweepConfig, size: DataSize) -> _Seconds | None:
    model, data = unit.trainings[0].cell.model, unit.trainings[0].cell.data
    speed = backbone_speed(model)
    if speed is None:
        return None
    stage, cells = unit.stage, len(unit.trainings)
    device, forward = DEVICES[_kind(config)], _forward_seconds(unit, config, speed)
    gmac_s = device.gmac_s * _slower(unit, config) / (1 if config.resources.gpus else config.resources.cpus)

    epochs = unit.trainings[0].num_epochs
    steps = epochs * num_batches(size.captions, stage.batch_size, stage.drop_last)
    pairs = steps * stage.batch_size
    devices = max(1.0, config.resources.gpus)
    chunked = 0 < stage.micro_batch < stage.batch_size / devices
    heads = head_size(model, data, width=speed.width, words=size.words)
    # X-VLM matches each pair, and two more with a drawn negative.
    training = heads.image_gmac + heads.caption_gmac + 3 * heads.pair_gmac
    # A batch in chunks passes forward twice; of three times the work of a forward pass that makes four.
    encode = cells * pairs * training * gmac_s * (4 / 3 if chunked else 1)
    load = 0.0
    if data.image is not None and not computes_features_once(unit):
        own = device.train_factor + chunked + stage.recompute if stage.trains_backbone else 1.0
        encode += pairs * forward * (1.0 if stage.shares_backbone else cells * own)
        load = pairs * IMAGE_LOAD_S
    # Several GPUs divide the encoding of a batch, and their processes the decoding; what they exchange is not counted.
    # A stack of cells starts its kernels once for all of them, but BERTs one after the other. On a CPU it measured no
    # faster than its cells in turn.
    stacked = unit_path(unit, config).name == "heads" and model.framework == "vsepp"
    launches = 1 if stacked and config.resources.gpus else cells
    compute = encode / devices + launches * steps * device.step_s
    compute += cells * epochs * _evaluation_seconds(unit, size, heads, forward, gmac_s)
    workers = config.resources.loader_workers
    total = max(compute, load / workers) if workers else compute + load / devices
    return _Seconds(total, compute, launches * steps * device.step_s)


def _evaluation_seconds(unit: Unit, size: DataSize, heads: HeadSize, forward: float, gmac_s: float) -> float:
    """Seconds of evaluating one cell after one epoch. A shared backbone's features of the split are computed once."""
    images, captions = size.val
    xvlm = unit.trainings[0].cell.model.xvlm
    matched = xvlm.rerank_top * (images + captions) if heads.pair_gmac else 0
    gmacs = images * heads.image_gmac + captions * heads.caption_gmac + matched * heads.pair_gmac
    own = 0.0 if unit.stage.shares_backbone else images * forward
    return own + gmacs * gmac_s / 3  # without the backward pass
