"""The cells of a unit in training: trainings of one stage, side by side, on one device.

Every batch goes to every cell that still needs it. A cell that has finished or failed, or that has resumed at a later
step than the others, takes no part, so no cell's numbers depend on which others are there, but for the rounding of
stacked heads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from itertools import islice
from traceback import clear_frames

import torch

from goal_core.basics.errors import FencedError
from goal_core.checkpoints import LAST, InitialModel, ModelDescription
from goal_core.data import Batch, BatchSource, Dataset
from goal_core.data.packs import open_packed
from goal_core.evaluation import EvalSplit, all_recalls_of, prepare_split, recalls_of
from goal_core.training.cells.scale import BATCHES
from goal_core.training.cells.stacks import SplitShare, Stacks
from goal_core.training.cells.trainer import CellTrainer
from goal_core.training.data_wait import DataWait
from goal_core.training.placing import place
from goal_core.training.plan import (
    EpochDone,
    Listener,
    TrainingDone,
    TrainingEvent,
    TrainingFailed,
    TrainingFiles,
    TrainingPlan,
    UnitPlan,
    fits_or_says,
)
from goal_core.training.processes.ranks import ALONE, Ranks, weight_sums
from goal_core.training.sharing import choose_path
from goal_core.training.trunk import SharedBatch, Trunk
from goal_core.training.warmup import below_warmup
from goal_core.training.weak import weak_objective


class _Stopped(BaseException):
    """The listener wants the unit to stop. Not an error, so that no cell is failed for it."""


class UnitTrainer:
    """The cells of a unit and all that they share; :func:`~goal_core.training.train.train_unit` runs one."""

    def __init__(
        self,
        unit: UnitPlan,
        files: Mapping[str, TrainingFiles],
        listener: Listener,
        dataset: Dataset,
        ranks: Ranks = ALONE,
    ) -> None:
        dataset, self._images = open_packed(dataset, unit.data.image, unit.packs)
        self._unit, self._files, self._listener, self._dataset, self._ranks = unit, files, listener, dataset, ranks
        self._initial = InitialModel(unit.model, unit.data, dataset)
        self._weights_id = self._initial.framework.weights_id(self._initial.model)
        self._trunk = Trunk(unit, self._initial, dataset.fingerprint, alive=self._alive)
        if unit.stage.feature_views:
            self._images += f", {unit.stage.feature_views} augmented views of each training image, computed once"
        self._source = BatchSource(
            dataset.splits["train"],
            self._initial.tokenizer,
            self._trunk.image,
            batch_size=unit.stage.batch_size,
            drop_last=unit.stage.drop_last,
            seed=unit.seed,
            with_images=self._trunk.wants_pixels(),
            num_workers=-(-unit.loader_workers // unit.processes),
            rows=ranks.rows if unit.processes > 1 else None,
            device=self._trunk.device,
            views=unit.stage.feature_views,
            augment=self._initial.framework.augment(self._initial.model, self._initial.tokenizer, unit.seed),
        )
        self._path = choose_path(unit)
        self._stacks = Stacks(wanted=self._path.name == "heads", shares_gpu=unit.units_per_gpu > 1)
        self._cells: dict[str, CellTrainer] = {}
        """The cells in training, by key; one that fails leaves."""
        self._splits: dict[str, EvalSplit] = {}
        """The splits prepared for evaluation, by name."""
        self._events: list[TrainingEvent] = []
        """What the listener has not been told yet."""
        self._outcomes: list[TrainingDone | TrainingFailed] = []

    def train(self) -> list[TrainingDone | TrainingFailed]:
        """Train until every cell is at its end, or the listener stops. Returns how each training ended, in order."""
        try:
            self._train()
        except _Stopped:
            for cell in list(self._cells.values()):
                with self._fails_alone(cell.key):
                    cell.save_unsaved()
        self._report()
        return self._outcomes

    def _train(self) -> None:
        """The training loop."""
        stage, steps = self._unit.stage, self._source.steps_per_epoch
        for epoch in range(self._start(), self._unit.epochs):
            if unscaled := [cell for cell in self._cells_at(epoch, 0) if cell.wants_scale]:
                with self._ranks.together():
                    self._ranks.send(("scale", epoch, [cell.key for cell in unscaled]))
                self._scale(unscaled, epoch)
                self._log_scales(unscaled)
            wait = DataWait()
            for step, batch in wait.watch(self._batches(epoch)):
                cells = self._cells_at(epoch, step)
                with self._ranks.together():
                    self._ranks.send(("step", epoch, step, [cell.key for cell in cells]))
                shared = self._load(batch)
                outcomes = self._stacks.step(cells, shared)
                for cell in cells:
                    with self._fails_alone(cell.key):
                        if cell.key in outcomes:
                            outcome, seconds = outcomes[cell.key]
                            cell.take_step(outcome, seconds=seconds)
                        else:
                            with self._ranks.together():
                                cell.step(shared.inputs, shared.captions, shared_s=shared.seconds / len(cells))
                        if stage.checkpoint_every and cell.next_step % stage.checkpoint_every == 0:
                            cell.save_last()
                self._listener.step()
                self._stop_if_asked()
            self._validate_all(self._cells_at(epoch, steps), wait.share)
            self._report()
        self._finish_all()

    def _scale(self, cells: Sequence[CellTrainer], epoch: int) -> None:
        """Measure the scales of cells that begin an epoch, on its first batches."""
        norms: dict[str, list[tuple[float, float]]] = {cell.key: [] for cell in cells}
        with closing(self._source.batches(epoch + 1)) as batches:
            for batch in islice(batches, BATCHES):
                shared = self._load(batch)
                for cell in cells:
                    if cell.key in self._cells:
                        with self._fails_alone(cell.key), self._ranks.together():
                            norms[cell.key].append(cell.measure(shared.inputs, shared.captions))
                self._listener.alive()
        for cell in cells:
            if cell.key in self._cells:
                with self._fails_alone(cell.key):
                    cell.set_scale(norms[cell.key])

    def _log_scales(self, cells: Sequence[CellTrainer]) -> None:
        for cell in cells:
            if cell.term in cell.scales:
                with self._fails_alone(cell.key):
                    cell.files.log(
                        f"scale of the {cell.term}: {cell.scales[cell.term]:.6g}, with which its gradient on the "
                        "embeddings of the first batches is as large as that of the loss it replaces"
                    )

    def _validate_all(self, cells: Sequence[CellTrainer], data_wait: float) -> None:
        """Validate the cells whose epoch has ended, in which this share of the unit's time was waiting for data."""
        if self._unit.processes > 1:
            for cell in cells:
                with self._ranks.together():
                    self._ranks.send(("check", cell.key), {"weights": weight_sums(cell.parameters)})
        names = {"val", self._unit.stage.select_on} if cells else set()
        embedded = {name: self._stacks.embed(cells, self._splits[name]) for name in sorted(names)}
        for cell in cells:
            with self._fails_alone(cell.key):
                self._validate(cell, {name: by_key.get(cell.key) for name, by_key in embedded.items()}, data_wait)

    def _finish_all(self) -> None:
        """Finish the cells at the end of the stage."""
        if self._cells and self._unit.tested:
            self._prepare_splits("test")
        for cell in list(self._cells.values()):
            with self._fails_alone(cell.key):
                cell.refuse_collapsed()
                cell.load_best()
        cells = list(self._cells.values())
        embedded = self._stacks.embed(cells, self._splits["test"]) if cells and self._unit.tested else {}
        for cell in cells:
            with self._fails_alone(cell.key):
                self._finish(cell, embedded.get(cell.key))

    def _load(self, batch: Batch) -> SharedBatch:
        """A batch on the device, with the inputs of this process's rows."""
        loaded = self._trunk.load(batch)
        if self._unit.processes == 1 or batch.images is not None:
            return loaded
        return loaded._replace(inputs=loaded.inputs[self._ranks.rows(len(batch))])

    def _alive(self) -> None:
        self._listener.alive()
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._listener.stopping():
            raise _Stopped

    def close(self) -> None:
        """Stop the processes that decode images."""
        self._source.close()

    def _start(self) -> int:
        """Start or resume every cell, and prepare what their remaining epochs need; the first of these, from 0."""
        for plan in self._unit.trainings:
            with self._fails_alone(plan.key):
                self._cells[plan.key] = self._start_cell(plan)
        first = min((cell.epoch for cell in self._cells.values()), default=self._unit.epochs)
        if first < self._unit.epochs:
            with fits_or_says("the features of all training images"):
                self._trunk.prepare(self._dataset.splits["train"])
            with self._ranks.together():
                self._ranks.send(("prepare",))
            self._prepare_splits("val", self._unit.stage.select_on)
        if origins := ", ".join(f"{split} {how}" for split, how in self._trunk.features_from.items()):
            for cell in list(self._cells.values()):
                with self._fails_alone(cell.key):
                    cell.files.log(f"features: {origins}")
        return first

    def _start_cell(self, plan: TrainingPlan) -> CellTrainer:
        unit = self._unit
        # Beside other cells it may yet fit when they are done: that is a lack of memory as any other.
        alone = fits_or_says("the model") if len(unit.trainings) == 1 else nullcontext()
        with alone:
            cell = self._build_cell(plan)
        resumed = cell.resume()
        if not resumed and plan.init is not None and plan.state is not None:
            cell.continue_from(plan.state, plan.init, plan.init_key)
            resumed = True
        elif not resumed and plan.init is not None:
            cell.start_from(plan.init, plan.init_key)
        if unit.processes > 1:
            tensors, state = cell.state()
            with self._ranks.together():
                self._ranks.send(("start", self._dataset.fingerprint, plan.key, state), tensors)
        start = "continues after" if resumed else "starts at"
        how = f", {unit.stage.micro_batch} pairs at a time" if unit.stage.micro_batch else ""
        how += f", on {unit.processes} devices" if unit.processes > 1 else ""
        at = f"epoch {cell.epoch} step {cell.next_step}{how}"
        cell.files.log(f"{unit.stage.name} {plan.objective.name} {start} {at}")
        cell.files.log(f"path {self._path.name}: {self._path.why}")
        cell.files.log(f"images: {self._images}")
        return cell

    def _build_cell(self, plan: TrainingPlan) -> CellTrainer:
        unit, initial = self._unit, self._initial
        backbone = None if unit.stage.shares_backbone else initial.backbone(unit.seed)
        heads = initial.heads(backbone or self._trunk.backbone, unit.seed)
        return CellTrainer(
            plan,
            unit,
            heads.to(self._trunk.device),
            None if backbone is None else place(backbone, unit),
            self._files[plan.key],
            self._description(plan),
            steps_per_epoch=self._source.steps_per_epoch,
            keep_backbone=self._trunk.backbone if initial.keeps_backbone else None,
            ranks=self._ranks,
        )

    def _description(self, plan: TrainingPlan) -> ModelDescription:
        return ModelDescription(
            cell=plan.cell_id,
            stage=self._unit.stage.name,
            objective=plan.objective.resolved(),
            seed=self._unit.seed,
            precision=self._unit.precision,
            data=self._unit.data,
            data_fingerprint=self._dataset.fingerprint,
            model=self._initial.model,
            weights=self._weights_id,
            vocabulary=self._initial.tokenizer,
        )

    def _prepare_splits(self, *names: str) -> None:
        for name in names:
            if name not in self._splits:
                split = self._dataset.splits[name]
                with fits_or_says(f"the images of {name}"):
                    inputs = self._trunk.split_inputs(split)
                self._splits[name] = prepare_split(split, self._initial.tokenizer, inputs, self._alive)

    def _batches(self, epoch: int) -> Iterator[tuple[int, Batch]]:
        """The epoch's batches that a cell needs, each with its step, as long as a cell is in this epoch."""
        steps = self._source.steps_per_epoch
        first = min((cell.next_step for cell in self._cells.values() if cell.epoch == epoch), default=steps)
        for step, batch in enumerate(self._source.batches(epoch + 1, start_step=first), start=first):
            if self._cells_at(epoch, step):
                yield step, batch
            if all(cell.epoch > epoch for cell in self._cells.values()):
                return

    def _cells_at(self, epoch: int, step: int) -> list[CellTrainer]:
        """The cells whose next step this is. Step ``steps_per_epoch`` means that all steps of the epoch are done."""
        return [cell for cell in self._cells.values() if (cell.epoch, cell.next_step) == (epoch, step)]

    def _validate(self, cell: CellTrainer, shares: Mapping[str, SplitShare | None], data_wait: float) -> None:
        """Evaluate a cell after an epoch, record it, and save its state, and its weights if they are the best.

        Args:
            cell: the cell.
            shares: the splits' embeddings, where the cell is part of a stack.
            data_wait: the share of the epoch's time that the unit waited for data.
        """

        def recalls_on(name: str) -> dict[str, float]:
            share = shares[name]
            with fits_or_says(f"the evaluation on {name}"):
                return recalls_of(cell.encoder, self._splits[name], share and share.embedded)

        began, val = time.perf_counter(), shares["val"]
        recalls = recalls_on("val")
        took = time.perf_counter() - began + (val.seconds if val else 0.0)
        test_rsum = recalls_on("test")["test/rsum"] if self._unit.stage.select_on == "test" else None
        record = cell.close_epoch(recalls, val_s=took, data_wait=data_wait, test_rsum=test_rsum)
        shown = record["metrics"]
        cell.files.log(
            f"epoch {record['epoch']}/{self._unit.epochs}  lr {shown['train/lr']:g}  "
            f"hinge {shown['train/hinge']:.2f}  pos {shown['train/pos_sim']:.3f}  neg {shown['train/neg_sim']:.3f}  "
            f"val R@1 {shown['val/i2t_r1']:.1f} / {shown['val/t2i_r1']:.1f}  rsum {shown['val/rsum']:.1f}  "
            f"{shown['time/step_ms']:.0f} ms/step, {data_wait:.0%} waiting for data"
        )
        if weak := weak_objective([record], cell.stage.warmup_epochs):
            cell.files.log(f"WEAK OBJECTIVE: {weak}; the encoders train almost by matching alone")
        self._events.append(EpochDone(key=cell.key, record=record))

    def _finish(self, cell: CellTrainer, share: SplitShare | None) -> None:
        """Write a cell's result, with the numbers of its best weights, which it has loaded, on the test split.

        Those of a candidate are not tested; its result has the validation of the best epoch.
        """
        val = cell.history[cell.best_epoch - 1]["metrics"]
        if self._unit.tested:
            with fits_or_says("the evaluation on test"):
                recalls = all_recalls_of(cell.encoder, self._splits["test"], share and share.embedded)
            metrics = {**recalls, "val/rsum": val["val/rsum"]}
            shown = f"test R@1 {recalls['test/i2t_r1']:.1f} / {recalls['test/t2i_r1']:.1f}"
        else:
            metrics = {name: value for name, value in val.items() if name.startswith("val/")}
            shown = f"val rsum {metrics['val/rsum']:.1f}, not tested"
        result = {
            "cell": cell.cell_id,
            "stage": self._unit.stage.name,
            "status": "done",
            "best_epoch": cell.best_epoch,
            "epochs": cell.epoch,
            "metrics": metrics,
            "seconds": cell.seconds,
        }
        if self._unit.until:
            result["until"] = self._unit.until
        if cell.stacked_steps:
            result["stacked"] = cell.stacked_steps / (cell.epoch * self._source.steps_per_epoch)
        if cell.scales:
            result["scales"] = cell.scales
        cell.files.log(f"done: {shown} (best epoch {cell.best_epoch})")
        if below := below_warmup(cell.history, cell.stage.warmup_epochs, cell.best_epoch):
            cell.files.log(f"BELOW ITS WARM-UP: {below}; this result shows damage, not what the objective can do")
        cell.files.finish(result)
        if not self._unit.until:  # or else another training may continue this one
            cell.files.discard(LAST)
        self._end(TrainingDone(key=cell.key, result=result))

    @contextmanager
    def _fails_alone(self, key: str) -> Iterator[None]:
        """If the block raises, this training fails and leaves the unit; the others go on."""
        try:
            yield
        except FencedError:  # another attempt owns the training now, so nothing may be written
            self._cells.pop(key, None)
        except Exception as error:
            self._cells.pop(key, None)
            failed = TrainingFailed.because_of(key, error)
            clear_frames(error.__traceback__)  # they hold the activations
            self._end(failed)
            with suppress(OSError):  # the disk that failed this training must not fail its neighbours
                self._files[key].log(f"failed ({failed.kind}): {failed.reason}")
            if self._trunk.device.type == "cuda":
                torch.cuda.empty_cache()

    def _end(self, outcome: TrainingDone | TrainingFailed) -> None:
        self._events.append(outcome)
        self._outcomes.append(outcome)

    def _report(self) -> None:
        """Tell the listener what has happened since the last report."""
        if self._events:
            self._listener.events(tuple(self._events))
            self._events = []
