"""Train a unit: one or more cells of the same stage, side by side, on one device.

The loop hands each batch to every cell that still wants it. A cell that has finished, failed, or resumed from a later
step than its siblings simply does not take part, so nobody's numbers depend on who else is there.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import torch

from goal_core.checkpoints.description import ModelDescription
from goal_core.checkpoints.initial_model import InitialModel, init_id
from goal_core.data import Batch, BatchSource, Dataset, open_dataset
from goal_core.data.text.tokenizer import Tokenizer
from goal_core.errors import DeviceError, FencedError
from goal_core.evaluation.embedding import EvalSplit, prepare_split
from goal_core.evaluation.recalls import recalls_of
from goal_core.frameworks import framework_of
from goal_core.models import ImageBackbone, ModelConfig
from goal_core.training.cell_trainer import LAST, CellTrainer
from goal_core.training.failures import failure_kind, failure_reason
from goal_core.training.plan import (
    EpochDone,
    Listener,
    SilentListener,
    TrainingDone,
    TrainingEvent,
    TrainingFailed,
    TrainingFiles,
    TrainingPlan,
    UnitPlan,
)
from goal_core.training.trunk import Trunk

T = TypeVar("T")


class _Validation(NamedTuple):
    """What every epoch is measured on."""

    val: EvalSplit
    test: EvalSplit | None
    """Where the stage selects on it."""


def train_unit(
    unit: UnitPlan,
    files: Mapping[str, TrainingFiles],
    listener: Listener | None = None,
    dataset: Dataset | None = None,
) -> list[TrainingDone | TrainingFailed]:
    """Train a unit's cells to the end of their stage, continuing whatever their folders already hold.

    Args:
        unit: what to train.
        files: for each training's key, where its files lie.
        listener: who hears of steps and events.
        dataset: the data, if it is open already.

    Returns:
        How each cell ended, in the order they ended.

    Raises:
        GoalError: the data, the weights or the device are not what the unit needs; no cell can train.
    """
    use_device(unit)
    return UnitTrainer(unit, files, listener or SilentListener(), dataset or open_dataset(unit.data)).run()


def cards_of(
    unit: UnitPlan, model: ModelConfig, vocabulary: Tokenizer, fingerprint: str
) -> dict[str, ModelDescription]:
    """The card of each cell of a unit, by key; ``model`` as it is built."""
    weights = framework_of(model).weights_id(model)

    def card(training: TrainingPlan) -> ModelDescription:
        return ModelDescription(
            cell=training.cell_id,
            stage=unit.stage.name,
            objective=training.objective.resolved(),
            seed=unit.seed,
            precision=unit.precision,
            data=unit.data,
            data_fingerprint=fingerprint,
            model=model,
            weights=weights,
            vocabulary=vocabulary,
        )

    return {training.key: card(training) for training in unit.trainings}


def use_device(unit: UnitPlan) -> None:
    """Set torch's threads and check that the device is there.

    Raises:
        DeviceError: CUDA is asked for and absent.
    """
    torch.set_num_threads(unit.threads)
    if unit.device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("a GPU is asked for (resources.gpus), but torch sees no CUDA device here")


class UnitTrainer:
    """A unit's cells, ready to train; see :func:`train_unit`, which makes one and runs it."""

    def __init__(
        self, unit: UnitPlan, files: Mapping[str, TrainingFiles], listener: Listener, dataset: Dataset
    ) -> None:
        self.unit, self.files, self.listener, self.dataset = unit, files, listener, dataset
        self.device = torch.device(unit.device)
        self.first = InitialModel(unit.model, unit.data, dataset)
        self.tokenizer = self.first.tokenizer
        self.shared = self._backbone() if unit.stage.shares_backbone else None
        start = init_id(unit.model)
        self.trunk = Trunk(unit, self.shared, dataset.fingerprint, alive=listener.alive, init_id=start)
        self.cards = cards_of(unit, self.first.model, self.tokenizer, dataset.fingerprint)
        self.pending: list[TrainingEvent] = []
        self.outcomes: list[TrainingDone | TrainingFailed] = []

    def run(self) -> list[TrainingDone | TrainingFailed]:
        """Train every cell to the end of the stage; how each ended, in the order they ended."""
        train = self.dataset.splits["train"]
        source = BatchSource(
            train,
            self.tokenizer,
            self.trunk.image,
            batch_size=self.unit.stage.batch_size,
            drop_last=self.unit.stage.drop_last,
            seed=self.unit.seed,
            with_images=self.trunk.wants_pixels(),
            num_workers=self.unit.loader_workers,
            augment=self.first.framework.augment(self.first.model, self.tokenizer, self.unit.seed),
        )
        starts = {plan.key: partial(self._start, plan, source.steps_per_epoch) for plan in self.unit.trainings}
        runs = [run for key, start in starts.items() if (run := self._guard(key, start))]
        if any(run.epoch < self.unit.stage.epochs for run in runs):
            self.trunk.prepare(train)
        val = self._prepare("val")
        test = self._prepare("test") if self.unit.stage.select_on == "test" else None
        for epoch in range(min((run.epoch for run in runs), default=0), self.unit.stage.epochs):
            runs = self._epoch(runs, source, _Validation(val=val, test=test), epoch)
            self._flush()
        source.close()
        if runs:
            test = test or self._prepare("test")
            for run in runs:
                self._guard(run.key, partial(self._finish, run, test))
        self._flush()
        return self.outcomes

    def _prepare(self, name: str) -> EvalSplit:
        split = self.dataset.splits[name]
        return prepare_split(split, self.tokenizer, self.trunk.split_inputs(split), self.listener.alive)

    def _backbone(self) -> ImageBackbone | None:
        backbone = self.first.backbone(self.unit.seed)
        return None if backbone is None else backbone.to(self.device)

    def _start(self, plan: TrainingPlan, steps_per_epoch: int) -> CellTrainer:
        backbone = None if self.unit.stage.shares_backbone else self._backbone()
        heads = self.first.heads(backbone or self.shared, self.unit.seed).to(self.device)
        kept = self.shared if self.first.keeps_backbone else None
        folder, card = self.files[plan.key], self.cards[plan.key]
        run = CellTrainer(
            plan, self.unit, heads, backbone, folder, card, steps_per_epoch=steps_per_epoch, keep_backbone=kept
        )
        resumed = run.resume()
        if not resumed and plan.init is not None:
            run.start_from(plan.init)
        start = "continues after" if resumed else "starts at"
        run.folder.log(f"{self.unit.stage.name} {plan.objective.name} {start} epoch {run.epoch} step {run.next_step}")
        return run

    def _epoch(
        self, runs: list[CellTrainer], source: BatchSource, splits: _Validation, epoch: int
    ) -> list[CellTrainer]:
        """Bring every cell to the end of an epoch; returns those still alive."""
        waiting = [run for run in runs if run.epoch <= epoch]
        ahead = [run for run in runs if run.epoch > epoch]
        first = min((run.next_step for run in waiting), default=0)
        steps = source.steps_per_epoch
        for step, batch in enumerate(source.batches(epoch + 1, start_step=first), start=first):
            taking = [run for run in waiting if run.position() == (epoch, step)]
            if taking:
                lost = self._batch(taking, batch)
                waiting = [run for run in waiting if run not in lost]
            self.listener.step(epoch * steps + step + 1, self.unit.stage.epochs * steps)
            if not waiting:
                break
        closed = [run for run in waiting if self._guard(run.key, partial(self._close, run, splits, steps))]
        return [run for run in runs if run in closed or run in ahead]

    def _batch(self, taking: list[CellTrainer], batch: Batch) -> list[CellTrainer]:
        """One step of each cell; returns those that failed."""
        began = time.perf_counter()
        inputs, captions = self.trunk.batch_inputs(batch), self.trunk.captions(batch)
        share = (time.perf_counter() - began) / len(taking)
        return [run for run in taking if not self._guard(run.key, partial(self._step, run, inputs, captions, share))]

    def _step(self, run: CellTrainer, inputs: torch.Tensor, batch: Batch, share: float) -> bool:
        began = time.perf_counter()
        run.step(inputs, batch)
        run.seconds += time.perf_counter() - began + share
        every = self.unit.stage.checkpoint_every
        if every and run.next_step % every == 0:
            run.save_last()
        return True

    def _close(self, run: CellTrainer, splits: _Validation, steps: int) -> bool:
        began = time.perf_counter()
        named = recalls_of(run.encoder, splits.val, "val")
        recalls = {key.removeprefix("val/"): value for key, value in named.items() if key.startswith("val/")}
        took = time.perf_counter() - began
        on_test = None if splits.test is None else recalls_of(run.encoder, splits.test, "test")["test/rsum"]
        before = sum(row["metrics"]["time/train_s"] for row in run.history)
        spent = run.seconds - before
        times = {"train_s": spent, "step_ms": 1000 * spent / steps, "val_s": took}
        record = run.close_epoch(recalls, times, on_test)
        shown = record["metrics"]
        run.folder.log(
            f"epoch {record['epoch']}/{self.unit.stage.epochs}  lr {shown['train/lr']:g}  "
            f"hinge {shown['train/hinge']:.2f}  pos {shown['train/pos_sim']:.3f}  neg {shown['train/neg_sim']:.3f}  "
            f"val R@1 {recalls['i2t_r1']:.1f} / {recalls['t2i_r1']:.1f}  rsum {recalls['rsum']:.1f}  "
            f"{shown['time/step_ms']:.0f} ms/step"
        )
        self.pending.append(EpochDone(key=run.key, record=record))
        return True

    def _finish(self, run: CellTrainer, test: EvalSplit) -> bool:
        run.refuse_collapsed()
        run.load_best()
        recalls = recalls_of(run.encoder, test, "test")
        result = {
            "cell": run.cell_id,
            "stage": self.unit.stage.name,
            "status": "done",
            "best_epoch": run.best_epoch,
            "epochs": run.epoch,
            "metrics": {**recalls, "val/rsum": run.history[run.best_epoch - 1]["metrics"]["val/rsum"]},
            "seconds": run.seconds,
        }
        run.folder.log(
            f"done: test R@1 {recalls['test/i2t_r1']:.1f} / {recalls['test/t2i_r1']:.1f} (best epoch {run.best_epoch})"
        )
        run.folder.finish(result)
        run.folder.discard(LAST)
        outcome = TrainingDone(key=run.key, result=result)
        self.pending.append(outcome)
        self.outcomes.append(outcome)
        return True

    def _guard(self, key: str, act: Callable[[], T]) -> T | None:
        """Do something for one cell; if it raises, that cell fails and its siblings go on."""
        try:
            return act()
        except FencedError:
            return None  # somebody else's cell now: nothing of ours may be written about it
        except Exception as error:
            failed = TrainingFailed(
                key=key,
                kind=failure_kind(error),
                reason=failure_reason(error),
                trace=traceback.format_exc(),
            )
            self.files[key].log(f"failed ({failed.kind}): {failed.reason}")
            self.pending.append(failed)
            self.outcomes.append(failed)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            return None

    def _flush(self) -> None:
        if self.pending:
            self.listener.events(tuple(self.pending))
            self.pending = []
