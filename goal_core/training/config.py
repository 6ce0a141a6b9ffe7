"""The settings of one training stage in a sweep file."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from goal_sweep.goal_core.basics.ranges import InRange, Range

Compile = Literal["auto", "on", "off"]
Precision = Literal["fp32", "tf32", "bf16"]
"""Arithmetic of the training steps' forward and backward passes. `fp32`: IEEE float32 everywhere. `tf32`: float32 in
memory, but the factors of matrix products, convolutions and GRUs are rounded to 10 bits; GPUs from Ampere on have it.
`bf16`: torch's autocast in backbones and text encoders. Heads, weights, optimiser, objectives and recalls are IEEE
float32 except in `tf32`."""
SMALLEST_CHUNK: Final = 4
"""Fewest pairs to encode at a time. What does not fit then is not the batch."""
Count = Annotated[int, Range(at_least=0)]
Factor = Annotated[float, Range(at_least=0)]
Share = Annotated[float, Range(at_least=0, below=1)]
Sharing = Literal["none", "trunk", "heads", "auto"]
"""How the cells of a unit share a device; see `goal_core.training.shared_backbone`."""

OF_ONE_TRAINING: Final = (
    *("lr", "lr_drops", "lr_drop_factor", "schedule", "lr_warmup", "bert_lr_scale", "backbone_lr_scale"),
    *("optimizer", "weight_decay", "beta2", "grad_clip", "warmup_epochs", "frozen_epochs", "ramp_epochs"),
)
"""Settings of a stage in which trainings that share a unit may differ: they touch neither the batches, nor the frozen
backbone's features, nor when cells are evaluated, on what, and saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig(InRange):
    """One phase of a cell's training. Each stage after the first starts from the best weights of the one before."""

    name: Literal["frozen", "finetune"]
    """`frozen`: only the heads train, the backbone keeps its weights; `finetune`: everything trains."""
    epochs: Annotated[int, Range(at_least=1, at_most=100_000)]
    """Passes over all training captions."""
    lr: Annotated[float, Range(above=0)]
    """Learning rate at the start, > 0."""
    batch_size: Annotated[int, Range(at_least=2)] = 128
    """Image-caption pairs per step, at least 2, or no pair has a negative."""
    micro_batch: Count = 0
    """Pairs to encode at a time, for batches larger than memory (docs/performance.md); 0: the whole batch at once. Not
    with `bn_mode: legacy_quirk`, nor for `vse_infty` on precomputed regions."""
    optimizer: Literal["adam", "adamw"] = "adam"
    weight_decay: Factor = 0.0
    beta2: Share = 0.999
    """Decay rate of the optimiser's second moment; that of the first is 0.9."""
    schedule: Literal["drops", "linear"] = "drops"
    """`drops`: the learning rate falls at `lr_drops`; `linear`: it rises from 0 over the first `lr_warmup` of the
    stage's steps, then falls to 0, as in X-VLM."""
    lr_warmup: Share = 0.0
    """Share of the steps in which the learning rate of `linear` rises, in [0, 1)."""
    lr_drops: tuple[int, ...] = ()
    """The learning rate is multiplied by `lr_drop_factor` after each of these numbers of epochs, all below `epochs`."""
    lr_drop_factor: Annotated[float, Range(above=0, at_most=1)] = 0.1
    bert_lr_scale: Factor = 1.0
    """Factor of `lr` for a pretrained BERT."""
    backbone_lr_scale: Factor = 1.0
    """Factor of `lr` for the image backbone in `finetune`."""
    frozen_epochs: Count = 0
    """Number of first epochs of `finetune` in which the backbone keeps its weights."""
    ramp_epochs: Count = 0
    """Number of epochs after `frozen_epochs` in which the loss is multiplied by the share of the epoch's steps that are
    done, as in VSE-infinity when its backbone begins to train."""
    grad_clip: Factor = 2.0
    """Global norm to which a cell's gradient is clipped; 0 does not clip."""
    warmup_epochs: Count = 0
    """Number of first epochs in which the loss is the hinge over all negatives, whatever the objective, as in
    VSE-infinity. They are never selected as the best."""
    drop_last: bool = False
    """Leave out the last, smaller batch of an epoch."""
    bn_mode: Literal["frozen_eval", "legacy_quirk"] = "frozen_eval"
    """Batch normalisation of VSE++'s backbone in training steps. `frozen_eval`: always the running statistics.
    `legacy_quirk`: as in the published code, each epoch begins with the statistics of the batches, which change the
    running ones even while the weights are frozen, until the first step whose number, over all epochs, is a multiple
    of 500. Cells then share no backbone."""
    select_on: Literal["val", "test"] = "val"
    """The split whose rsum selects the best epoch. `test`, as in much published code, flatters the numbers; the report
    and every grid then say so."""
    checkpoint_every: Count = 0
    """Steps between additional saves within an epoch; 0 saves at the end of each epoch only."""
    collapse_patience: Count = 500
    """A cell fails as collapsed after this many consecutive steps with its hinge within 1 % of 2 x batch x margin, or
    when no query of the split it selects on ever has its match among the first ten; 0: never."""

    @property
    def shares_backbone(self) -> bool:
        """Whether cells side by side can share one backbone, because no step changes it."""
        return self.name == "frozen" and self.bn_mode == "frozen_eval"

    @property
    def splits_batches(self) -> bool:
        """Whether a batch passes the encoders in several chunks."""
        return 0 < self.micro_batch < self.batch_size

    def needs_whole_batches(self, data_format: str) -> bool:
        """Whether batch normalisation uses the statistics of whole batches, as the heads of regions do."""
        return self.bn_mode == "legacy_quirk" or data_format == "regions"

    def smaller_chunk(self, data_format: str) -> int:
        """The `micro_batch` with which a training goes on that ran out of memory; 0 where none would help."""
        half = -(-(self.micro_batch or self.batch_size) // 2)
        return half if half >= SMALLEST_CHUNK and not self.needs_whole_batches(data_format) else 0

    @property
    def trains_backbone(self) -> bool:
        """Whether the optimiser changes the backbone's weights."""
        return self.name == "finetune"

    def problems(self) -> Iterator[str]:
        """Settings that do not go together."""
        if self.micro_batch and self.bn_mode == "legacy_quirk":
            yield "micro_batch needs bn_mode frozen_eval: legacy_quirk takes statistics of whole batches"
        if self.lr_drops and self.schedule == "linear":
            yield "lr_drops belong to schedule drops; with linear the rate falls to 0 at the last epoch by itself"
        if late := [drop for drop in self.lr_drops if not 0 < drop < self.epochs]:
            yield f"lr_drops must lie between 1 and epochs - 1 = {self.epochs - 1}, got {late}"
        if self.warmup_epochs >= self.epochs > 0:
            of = f"{self.warmup_epochs} of {self.epochs} epochs"
            yield f"warmup_epochs must leave an epoch to the objective, got {of}: more epochs, or less warm-up"
        if self.frozen_epochs + self.ramp_epochs > self.epochs:
            got = f"got {self.frozen_epochs} + {self.ramp_epochs}"
            yield f"frozen_epochs and ramp_epochs must fit into {self.epochs} epochs, {got}"
