"""What a unit costs: seconds, and megabytes of its device and of the disk. Nothing is built or trained.

Text encoders and heads count as multiply-adds of matrix products, all else by the numbers of a card and of `sizes`.
What finished trainings or measured steps tell corrects that, for their model in their stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.data import num_batches
from goal_sweep.goal_core.models.config import ModelConfig
from goal_sweep.goal_core.models.frameworks import framework_of
from goal_sweep.goal_core.models.sizes import CAPTION_LENGTH, BackboneSize, DataSize, HeadSize, backbone_size
from goal_sweep.goal_core.training.sharing import path_of
from goal_sweep.runners.execution.memory import Chunks
from goal_sweep.runners.planning.cards import CPU, GPU, Card
from goal_sweep.runners.planning.packing import solo_times
from goal_sweep.runners.store import Store, TrainingStatus
from goal_sweep.sweeps import SweepConfig, Training, Unit

Basis = Literal["finished", "measured", "calibration"]
"""What a number rests on: finished trainings of the model in the stage, a few steps trained here, or the arithmetic."""
Kind = tuple[ModelConfig, str]
"""A model in a stage."""
_START_S: Final = {"cpu": 3.0, "cuda": 20.0}
"""Seconds until a unit trains: process, imports, data, weights. Of a CPU measured with the quickstart, else assumed."""
_IMAGE_LOAD_S: Final = 0.005
"""Seconds in which one core decodes and crops a photograph of 640 x 480 pixels."""
BASE_MB: Final = {"cpu": 750.0, "cuda": 600.0}
"""Memory of a worker that trains nothing: the resident process, measured; the context of CUDA, assumed."""
_STATES: Final = {"cpu": 6.4, "cuda": 4.0}
"""Copies of a trained weight in fp32: itself, its gradient and Adam's two moments; measured on a CPU, with saving."""
_LIVE: Final = 2.5
"""Inputs and outputs of the largest layer that a pass without gradients holds; measured with residual networks."""
_KEPT_PER_WORD: Final = 10
"""Numbers of the embedding's width that a text encoder keeps for each word of a caption until the backward pass."""
_RANKED: Final = 24
"""Bytes that sorting holds for each dimension of each region of a batch; measured with stacks, padded and full."""
_SIMILARITIES: Final = 1.5
"""Copies of a batch's similarities that the objective holds in fp32; measured at 4,096 pairs."""
_EVALUATED: Final = 64
"""Images that are embedded at a time in evaluation."""
_LOOKED_AT: Final = 64
"""Finished trainings of a kind whose attempts are read, because a store may hold thousands."""


class Known(NamedTuple):
    """What is known of units of one kind beside the arithmetic."""

    basis: Basis
    time: float
    """Their seconds, divided by `Prices.time_shape`."""
    once_s: float = 0.0
    """Seconds of what only the first unit does, such as computing a backbone's features."""
    memory: float | None = None
    """Their megabytes, divided by `Prices.memory_shape`."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of the units of a sweep. What is not known is None."""

    config: SweepConfig
    size: DataSize
    known: Mapping[Kind, Known] = field(default_factory=dict)
    chunks: Mapping[Kind, int] = field(default_factory=dict)
    """The `micro_batch` to which a launch comes down where units do not fit into memory as the sweep asks."""

    @property
    def card(self) -> Card:
        """How fast the devices are taken to be."""
        return GPU if self.config.resources.gpus else CPU

    def basis(self, unit: Unit) -> Basis | None:
        """What a unit's price rests on."""
        counted: Basis | None = None if self._counted_s(unit) is None else "calibration"
        return self.known[unit.kind].basis if unit.kind in self.known else counted

    def seconds(self, unit: Unit) -> float | None:
        """Device seconds of a unit, its start included, without `once_s`."""
        start, known = _START_S[self.card.kind], self.known.get(unit.kind)
        seconds = self._counted_s(self.as_run(unit)) if known is None else known.time * self.time_shape(unit)
        return None if seconds is None else start + seconds

    def once_s(self, unit: Unit) -> float:
        """Device seconds of what only the first unit with the same `features` does."""
        if unit.kind in self.known:
            return self.known[unit.kind].once_s  # finished trainings have paid it
        backbone = backbone_size(unit.trainings[0].cell.model)
        if backbone is None or not unit.features:
            return 0.0
        passes = self.size.images * max(1, unit.stage.feature_views)  # too many by the views of the few for evaluation
        return passes * self._forward_s(unit, backbone)

    def total_s(self, units: Iterable[Unit]) -> float | None:
        """Device seconds of units, one after the other."""
        total, once = 0.0, dict[str, float]()
        for unit in units:
            if (seconds := self.seconds(unit)) is None:
                return None
            total += seconds
            once[unit.features] = self.once_s(unit)
        return total + sum(once.values())

    def memory_mb(self, unit: Unit) -> float | None:
        """Peak memory of a unit on its device, of several GPUs on the first, which also evaluates."""
        known, unit = self.known.get(unit.kind), self.as_run(unit)
        if known is None or known.memory is None:
            return self._counted_mb(unit)
        return known.memory * self.memory_shape(unit)

    def memory_basis(self, unit: Unit) -> Basis:
        """What a unit's memory rests on."""
        known = self.known.get(unit.kind)
        return "calibration" if known is None or known.memory is None else known.basis

    def disk_mb(self, unit: Unit) -> float | None:
        """Megabytes of the best weights of a unit's trainings, which are stored in fp32."""
        model = unit.trainings[0].cell.model
        if (backbone := backbone_size(model)) is None:
            return None
        # A frozen backbone is stored only where no file has its weights.
        stored = unit.stage.trains_backbone or model.backbone.weights == "random"
        return 4e-6 * len(unit.trainings) * (self._heads(unit, backbone).params + stored * backbone.params_m * 1e6)

    def most_cells(self, training: Training, usable_mb: float) -> int | None:
        """The most cells like one whose unit fits into so much memory, 0 for none."""
        one, two = (self.memory_mb(Unit(trainings=(training,) * count)) for count in (1, 2))
        if one is None or two is None:
            return None
        return max(0, 1 + int((usable_mb - one) // max(two - one, 1e-9)))

    def fitting_chunk(self, unit: Unit, usable_mb: float) -> int | None:
        """The `micro_batch` to which a launch halves batches until a unit fits; None if none does."""
        processes = max(1, int(self.config.resources.gpus))
        chunks = Chunks.of(unit.stage, self.config.data.format, processes).smaller
        while chunks is not None:
            memory_mb = self.memory_mb(changed(unit, micro_batch=chunks.size))
            if memory_mb is not None and memory_mb <= usable_mb:
                return chunks.size
            chunks = chunks.smaller
        return None

    def as_run(self, unit: Unit) -> Unit:
        """The unit as it will run, in chunks where it does not fit."""
        chunk = self.chunks.get(unit.kind)
        return unit if chunk is None else changed(unit, micro_batch=chunk)

    def time_shape(self, unit: Unit) -> float:
        """The seconds that are counted of a unit; without a price of its backbone, its time in epochs of a cell."""
        return self._counted_s(unit) or unit.trainings[0].num_epochs * solo_times(unit)

    def memory_shape(self, unit: Unit) -> float:
        """The megabytes that are counted of a unit; without the size of its backbone, its cells."""
        return self._counted_mb(unit) or len(unit.trainings)

    def _counted_s(self, unit: Unit) -> float | None:
        """Device seconds of a unit by arithmetic, without its start and without `once_s`."""
        training, stage, cells, resources = unit.trainings[0], unit.stage, len(unit.trainings), self.config.resources
        model, data, card, val = training.cell.model, training.cell.data, self.card, self.size.val
        if (backbone := backbone_size(model)) is None:
            return None
        forward = self._forward_s(unit, backbone)
        gmac_s = card.gmac_s * card.slower[training.precision] / (1 if resources.gpus else resources.cpus)
        steps = training.num_epochs * num_batches(self.size.captions, stage.batch_size, stage.drop_last)
        pairs, devices = steps * stage.batch_size, max(1.0, resources.gpus)
        chunked = 0 < stage.micro_batch < stage.batch_size / devices
        heads = self._heads(unit, backbone)
        # X-VLM matches each pair, and two more with a drawn negative. A batch in chunks passes forward twice; of three
        # times the work of a forward pass that makes four.
        gmacs = heads.image_gmac + heads.caption_gmac + 3 * heads.pair_gmac
        encode, load = cells * pairs * gmacs * gmac_s * (4 / 3 if chunked else 1), 0.0
        if data.image is not None and not unit.features:
            own = card.train_factor + chunked if stage.trains_backbone else 1.0
            encode += pairs * forward * (1.0 if stage.shares_backbone else cells * own)
            load = pairs * _IMAGE_LOAD_S
        # Several GPUs divide the encoding of a batch, and their processes the decoding; what they exchange is not
        # counted. A stack of cells starts its kernels once for all of them, but BERTs one after the other. On a CPU it
        # measured no faster than its cells in turn.
        stacked = self._stacks(unit) and model.framework == "vsepp" and resources.gpus
        compute = encode / devices + (1 if stacked else cells) * steps * card.step_s
        matched = model.xvlm.rerank_top * (val.images + val.captions) * heads.pair_gmac
        evaluated = val.images * heads.image_gmac + val.captions * heads.caption_gmac + matched
        images = 0.0 if stage.shares_backbone else val.images * forward
        compute += cells * training.num_epochs * (evaluated * gmac_s / 3 + images)  # without the backward pass
        workers = resources.loader_workers
        return max(compute, load / workers) if workers else compute + load / devices

    def _counted_mb(self, unit: Unit) -> float | None:
        """Peak memory of a unit by arithmetic."""
        cell, stage, cells, kind = unit.trainings[0].cell, unit.stage, len(unit.trainings), self.card.kind
        if (backbone := backbone_size(cell.model)) is None:
            return None
        rows = -(-stage.batch_size // max(1, int(self.config.resources.gpus)))
        chunk = min(stage.micro_batch or rows, rows)
        bytes_each = 2 if unit.trainings[0].precision in ("bf16", "fp16") else 4
        heads, dim = self._heads(unit, backbone), cell.model.embed_dim
        text = 1.0 * chunk * CAPTION_LENGTH * max(dim, heads.word_width) * _KEPT_PER_WORD * bytes_each
        ranked = _RANKED * chunk * heads.regions * dim * heads.is_sorted
        pixels = 0 if cell.data.image is None else cell.data.image.size**2
        area = 1e6 * pixels / backbone.image_size**2 * bytes_each / 4
        own: float = 4 * _STATES[kind] * heads.params
        common = self.size.val.captions * dim * 4.0
        # Cells that step one after the other hold activations one at a time.
        held = text + ranked + _SIMILARITIES * 4 * stage.batch_size**2
        common += held * (cells if self._stacks(unit) else 1)
        if stage.trains_backbone:
            own += 4e6 * _STATES[kind] * backbone.params_m
            common += chunk * backbone.kept_mb * area
        elif cell.data.image is not None:
            common += 4e6 * backbone.params_m * (1 if stage.shares_backbone else cells)
            common += max(chunk, _EVALUATED) * _LIVE * backbone.passing_mb * area
        features = backbone.width * heads.regions
        common += 4 * max(rows, _EVALUATED) * (3 * pixels or features)
        if unit.features:
            common += 4 * self.size.images * max(1, stage.feature_views) * features
        return BASE_MB[kind] + (common + cells * own) / 1e6

    def _heads(self, unit: Unit, backbone: BackboneSize) -> HeadSize:
        cell = unit.trainings[0].cell
        return framework_of(cell.model).head_size(cell.model, cell.data, width=backbone.width, words=self.size.words)

    def _forward_s(self, unit: Unit, backbone: BackboneSize) -> float:
        """Seconds in which an image passes the backbone; 0 where it is features already."""
        training, resources = unit.trainings[0], self.config.resources
        if (image := training.cell.data.image) is None:
            return 0.0
        seconds = self.card.forward_s(backbone, image.size, training.precision)
        return seconds if resources.gpus else seconds / resources.cpus

    def _stacks(self, unit: Unit) -> bool:
        """Whether the heads of a unit's cells run as one."""
        first, sharing = unit.trainings[0], self.config.execution.sharing
        device, processes, cells = self.card.kind, max(1, int(self.config.resources.gpus)), len(unit.trainings)
        shared = partial(path_of, cells, sharing=sharing, model=first.cell.model, stage=unit.stage)
        return shared(precision=first.precision, device=device, processes=processes).name == "heads"


def by_kind(trainings: Iterable[Training]) -> dict[Kind, list[Training]]:
    """Trainings by their model and stage, in their order."""
    groups: dict[Kind, list[Training]] = {}
    for training in trainings:
        groups.setdefault((training.cell.model, training.stage.name), []).append(training)
    return groups


def largest(units: Iterable[Unit]) -> dict[Kind, Unit]:
    """The largest unit of each model in each stage."""
    return {unit.kind: unit for unit in sorted(units, key=lambda unit: len(unit.trainings))}


def changed(unit: Unit, **settings: Any) -> Unit:
    """A unit whose stage has other settings."""
    return Unit(trainings=tuple(replace(one, stage=replace(one.stage, **settings)) for one in unit.trainings))


def finished(prices: Prices, store: Store, statuses: Mapping[Training, TrainingStatus]) -> dict[Kind, Known]:
    """What the finished ones of some trainings took.

    Args:
        prices: what the arithmetic says.
        store: where they are.
        statuses: of the trainings.
    """
    known: dict[Kind, Known] = {}
    for kind, done in by_kind(one for one, status in statuses.items() if status.state == "done").items():
        taken, shapes = 0.0, 0.0
        for one in done[:: -(-len(done) // _LOOKED_AT)]:
            with suppress(OSError, DamagedError):  # a price is no reason to stop
                attempts = [each for each in store.folder(one).attempts.all() if each.ended is not None]
                seconds = [((each.ended or 0.0) - each.started) / each.shared_by for each in attempts]
                # An imported result has no attempts. Then its own steps count.
                taken += sum(seconds) if attempts else float(statuses[one].result["seconds"])
                side = attempts[-1].shared_by if attempts else 1
                shapes += prices.time_shape(Unit(trainings=(one,) * side)) / side
        if shapes:
            known[kind] = Known("finished", taken / shapes)
    return known
