"""Train a unit: trainings of one stage, side by side, on one device.

Every batch goes to every cell that still needs it. A cell that has finished or failed, or that has resumed at a later
step than the others, takes no part, so no cell's numbers depend on which others are there, but for the rounding of
stacked heads.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from itertools import islice

import torch

from goal_sweep.goal_core.basics.devices import set_arithmetic
from goal_sweep.goal_core.basics.errors import DeviceError
from goal_sweep.goal_core.checkpoints.file import ModelDescription
from goal_sweep.goal_core.checkpoints.initial_model import InitialModel
from goal_sweep.goal_core.data import Dataset, num_batches
from goal_sweep.goal_core.data.batches import BatchSource
from goal_sweep.goal_core.data.formats.opening import open_dataset
from goal_sweep.goal_core.data.packs import open_packed
from goal_sweep.goal_core.models.heads import num_features
from goal_sweep.goal_core.objectives.gradient_objective import LossObjective
from goal_sweep.goal_core.training.cells.optim import BATCHES
from goal_sweep.goal_core.training.cells.roster import EpochBatches, Roster, Validation, fits_or_says
from goal_sweep.goal_core.training.cells.stack import Stacks
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.plan import (
    Callback,
    TrainingDone,
    TrainingFailed,
    TrainingFiles,
    TrainingPlan,
    UnitPlan,
)
from goal_sweep.goal_core.training.shared_backbone import SharedBackbone, SharedBatch, choose_path


class _Stopped(BaseException):
    """The callback wants the unit to stop. Not an error, so that no cell is failed for it."""


class UnitTrainer:
    """The cells of a unit and all that they share; :func:`~goal_core.training.train.train_unit` runs one."""

    def __init__(
        self, unit: UnitPlan, files: Mapping[str, TrainingFiles], callback: Callback, dataset: Dataset
    ) -> None:
        dataset, self._images = open_packed(dataset, unit.data.image, unit.packs)
        self._unit, self._files, self._callback, self._dataset = unit, files, callback, dataset
        self._initial = InitialModel(unit.model, unit.data, dataset)
        self._weights_id = self._initial.framework.weights_id(self._initial.model)
        captions, stage = dataset.splits["train"].num_captions, unit.stage
        steps = stage.epochs * num_batches(captions, stage.batch_size, stage.drop_last)
        self._shared = SharedBackbone(unit, self._initial, dataset.fingerprint, steps=steps, alive=self._alive)
        dataset, tokenizer = self._shared.with_text_vectors(dataset), self._initial.tokenizer
        self._source = BatchSource(
            dataset.splits["train"],
            tokenizer,
            self._shared.image,
            batch_size=unit.stage.batch_size,
            drop_last=unit.stage.drop_last,
            seed=unit.seed,
            with_images=self._shared.wants_pixels(),
            num_workers=unit.loader_workers,
            device=self._shared.device,
            augment=self._initial.framework.augment(self._initial.model, tokenizer, unit.seed),
        )
        self._path, self._why = choose_path(unit)
        self._stacks = Stacks(wanted=self._path == "heads")
        self._roster = Roster(files, callback)
        inputs = self._shared.split_inputs
        self._validation = Validation(unit, dataset, tokenizer, inputs, self._roster, self._stacks, self._alive)

    def train(self) -> list[TrainingDone | TrainingFailed]:
        """Train until every cell is at its end, or the callback stops. Returns how each training ended, in order."""
        try:
            for epoch in range(self._start(), self._unit.stage.epochs):
                self._measure_scales(epoch)
                batches = EpochBatches(self._source, self._roster, epoch)
                for step, batch in batches:
                    self._step(self._roster.at(epoch, step), self._shared.load(batch))
                    self._callback.step()
                    self._stop_if_asked()
                cells = self._roster.at(epoch, self._source.steps_per_epoch)
                self._validation.close_epoch(cells, batches.share_waited)
                self._roster.tell()
            self._validation.finish()
        except _Stopped:
            self._roster.each(CellTrainer.save_unsaved)
        self._roster.tell()
        return self._roster.outcomes

    def _step(self, cells: Sequence[CellTrainer], shared: SharedBatch) -> None:
        """One step of cells that are at the same one: as stacks where they train so, and otherwise each by itself."""
        outcomes = self._stacks.step(cells, shared.inputs, shared.captions, shared_s=shared.seconds / len(cells))

        def step(cell: CellTrainer) -> None:
            try:
                if cell.key in outcomes:
                    cell.take_step(*outcomes[cell.key])
                else:
                    cell.step(shared.inputs, shared.captions, shared_s=shared.seconds / len(cells))
            except Exception:
                cell.settle()  # a step that diverged is why the next one raises
                raise
            if cell.stage.checkpoint_every and cell.next_step % cell.stage.checkpoint_every == 0:
                cell.save_last()

        self._roster.each(step, cells)

    def _measure_scales(self, epoch: int) -> None:
        """Measure the scales of the objectives that begin with an epoch and need one, on its first batches."""
        if not (cells := [cell for cell in self._roster.at(epoch, 0) if cell.wants_scale]):
            return
        norms: dict[str, list[tuple[float, float]]] = {cell.key: [] for cell in cells}
        with closing(self._source.batches(epoch + 1)) as batches:
            for batch in islice(batches, BATCHES):
                shared = self._shared.load(batch)
                for cell in cells:
                    if cell.key in self._roster.cells:
                        with self._roster.failing_alone(cell.key):
                            norms[cell.key].append(cell.measure(shared.inputs, shared.captions))
                self._callback.alive()
        self._roster.each(lambda cell: cell.set_scale(norms[cell.key]), cells)

    def _alive(self) -> None:
        self._callback.alive()
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._callback.stopping():
            raise _Stopped

    def close(self) -> None:
        """Stop the processes that decode images, and free the memory of CUDA graphs, which outlives their backbones."""
        self._source.close()
        if self._shared.compiles and self._unit.device == "cuda":
            torch.compiler.reset()

    def _start(self) -> int:
        """Start or resume every cell, and prepare what their remaining epochs need; the first of these, from 0."""
        for plan in self._unit.trainings:
            with self._roster.failing_alone(plan.key):
                self._roster.cells[plan.key] = self._start_cell(plan)
        first = min((cell.epoch for cell in self._roster.cells.values()), default=self._unit.stage.epochs)
        if first < self._unit.stage.epochs:
            with fits_or_says("the features of all training images"):
                self._shared.prepare(self._dataset.splits["train"])
            self._validation.prepare("val", self._unit.stage.select_on)
        return first

    def _start_cell(self, plan: TrainingPlan) -> CellTrainer:
        unit = self._unit
        # Beside other cells it may yet fit when they are done: that is a lack of memory as any other.
        with fits_or_says("the model") if len(unit.trainings) == 1 else nullcontext():
            cell = self._build_cell(plan)
        start = "continues after" if cell.start(plan) else "starts at"
        how = f", {unit.stage.micro_batch} pairs at a time" if unit.stage.micro_batch else ""
        where = f"epoch {cell.epoch} step {cell.next_step}{how}"
        cell.files.log(f"{unit.stage.name} {plan.objective.name} {start} {where}")
        if isinstance(cell.objective, LossObjective):
            cell.files.log(cell.objective.origin)
        cell.files.log(f"path {self._path}: {self._why}")
        cell.files.log(f"images: {self._images}")
        return cell

    def _build_cell(self, plan: TrainingPlan) -> CellTrainer:
        unit, initial = self._unit, self._initial
        backbone = None if unit.stage.shares_backbone else initial.backbone(unit.seed)
        heads = initial.heads(backbone or self._shared.backbone, unit.seed)
        description = ModelDescription(
            cell=plan.cell_id,
            stage=unit.stage.name,
            objective=plan.objective.resolved(),
            seed=unit.seed,
            precision=unit.precision,
            data=unit.data,
            data_fingerprint=self._dataset.fingerprint,
            model=initial.model,
            weights=self._weights_id,
            vocabulary=initial.tokenizer,
            num_features=0 if unit.data.image is not None else num_features(None, self._dataset.splits["train"]),
        )
        return CellTrainer(
            plan,
            unit,
            heads.to(self._shared.device),
            None if backbone is None else self._shared.placed(backbone),
            self._files[plan.key],
            description,
            steps_per_epoch=self._source.steps_per_epoch,
            shared=self._shared.backbone,
            keeps_shared=initial.model.backbone.weights == "random",
            compiles=self._shared.compiles,
        )


def train_unit(
    unit: UnitPlan, files: Mapping[str, TrainingFiles], callback: Callback | None = None, dataset: Dataset | None = None
) -> list[TrainingDone | TrainingFailed]:
    """Train a unit's cells to the end of their stage, continuing from what their files already contain.

    Gives how each training ended, in the order in which they ended. Those that the callback stopped are left out; their
    files hold the exact state, from which the next call continues. A `GoalError` means that no cell can train.
    """
    torch.set_num_threads(unit.threads)
    set_arithmetic(unit.precision)
    if unit.cache is not None:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(unit.cache / "compiled"))
    if unit.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = not unit.deterministic
    if unit.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("a GPU was requested (resources.gpus), but torch finds no CUDA device")
    with closing(UnitTrainer(unit, files, callback or Callback(), dataset or open_dataset(unit.data))) as trainer:
        return trainer.train()
