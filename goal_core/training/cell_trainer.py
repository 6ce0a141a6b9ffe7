"""One cell in training: its weights, optimiser, random stream, position, history and best epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goal_core.atomic import DamagedError
from goal_core.checkpoints import (
    BEST,
    LAST,
    TRAINING,
    ModelDescription,
    best_name,
    load_module,
    optimizer_tensors,
    read_of_training,
    restore_optimizer,
    take_prefix,
    with_prefix,
    write_checkpoint,
    write_model,
)
from goal_core.data import Batch
from goal_core.errors import CollapsedError
from goal_core.models import Encoder, Heads, ImageBackbone, Pairs
from goal_core.objectives import CollapseDetector, ObjectiveStats
from goal_core.seeding import derive_seed
from goal_core.training.encoding import check_splits, encode_batch
from goal_core.training.optim import (
    build_optimizer,
    check_finite,
    clip_gradient,
    loss_scale,
    lr_at,
    parameter_groups,
    set_lr,
    sum_hinge,
    validated_since,
)
from goal_core.training.plan import EpochRecord, TrainingFiles, TrainingPlan, UnitPlan
from goal_core.training.random_stream import RandomStream
from goal_core.training.ranks import ALONE, Ranks
from goal_core.training.triplet_histogram import TripletHistogram

StepOutcome = dict[str, float] | Exception
"""The numbers to record of a step, or why it failed."""
Parts = dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]
"""Parts of a state by their names in its file, each with a function that reads it and one that puts it back."""


class CellTrainer:
    """The state of one cell and the step that advances it.

    It does not depend on the other cells of the unit: a cell's numbers are those it would have alone.

    Args:
        plan: the training.
        unit: what it shares with the unit's other trainings.
        heads: the trainable heads, on the device.
        backbone: the cell's own backbone; None where the unit shares a frozen one or the data consists of features.
        files: its files.
        description: of the model, for its checkpoints.
        steps_per_epoch: optimiser steps.
        keep_backbone: also save this shared backbone, whose weights exist nowhere else.
        ranks: the processes that train the cell together.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        unit: UnitPlan,
        heads: Heads,
        backbone: ImageBackbone | None,
        files: TrainingFiles,
        description: ModelDescription,
        *,
        steps_per_epoch: int,
        keep_backbone: ImageBackbone | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.key, self.cell_id, self.unit, self.files = plan.key, plan.cell_id, unit, files
        self.heads, self.backbone, self._kept_backbone = heads, backbone, keep_backbone
        self._description, self._steps_per_epoch = description, steps_per_epoch
        device = torch.device(unit.device)
        self.encoder = Encoder(heads=heads, backbone=backbone, precision=unit.precision, device=device)
        self.objective, self._objective_config = plan.objective.build(), plan.objective
        groups = parameter_groups(heads, backbone, unit.stage)
        self.parameters = [parameter for group in groups for parameter in group.parameters]
        self.optimizer = build_optimizer(groups, unit.stage)
        self.scaler = torch.amp.GradScaler(device.type, enabled=unit.precision == "fp16")
        self.stream = RandomStream(derive_seed(unit.seed, "train", unit.stage.name), device)
        self.triplets = TripletHistogram(device)
        self.collapse = CollapseDetector(margin=self.objective.margin, patience=unit.stage.collapse_patience)
        self.epoch, self.next_step = 0, 0
        """The position, both counted from 0: ``epoch`` epochs and ``next_step`` steps of the next are done."""
        self._saved = (0, 0)
        """The position whose state is on the disk; a cell at its beginning needs none."""
        self.best_epoch = 0
        self.best_rsum: float | None = None
        """Those of the best epoch so far, counted from 1; 0 and None before there is one."""
        self.history: list[EpochRecord] = []
        self.seconds = 0.0
        self.steps_before = 0
        """Steps of earlier stages."""
        check_splits(unit, heads)
        self._ranks, self.share = ranks, ranks.share(unit.stage.micro_batch)
        self.sums: dict[str, tuple[float, int]] = {}
        """Sum and count of every value logged in this epoch."""

    def step(self, inputs: Tensor, batch: Batch, *, shared_s: float = 0.0) -> None:
        """One optimiser step.

        Args:
            inputs: frozen features (B, F) or (B, R, F), or pixels (B, 3, S, S) for the cell's own backbone; of several
                processes each has its own rows.
            batch: the captions, on the device.
            shared_s: this cell's share of the seconds that loading the batch took.

        Raises:
            DivergedError: the gradient is not finite.
            NonFiniteError: the embeddings are not finite.
            CollapsedError: the hinge has stayed at its collapsed value for too long.
        """
        began, stage = time.perf_counter(), self.unit.stage
        set_lr(self.optimizer, lr_at(stage, self.epoch, self.next_step, self._steps_per_epoch))
        self.optimizer.zero_grad(set_to_none=True)
        self.encoder.train(True)
        with self.stream.active(), self.encoder.autocast():
            pairs = self._ranks.gather(encode_batch(self._encode, inputs, batch, self.share), len(batch))
        ids = batch.ids if self.heads.masks_same_image else None
        surrogate, stats = self.objective.forward_with_stats(pairs.image_BD, pairs.text_BD, ids)
        if self.epoch < stage.warmup_epochs:
            surrogate = sum_hinge(pairs.image_BD, pairs.text_BD, self.objective.margin, ids)
        with self.stream.active(), self.encoder.autocast():
            loss, extra = self.heads.total_loss(surrogate, pairs, batch.ids)
        scale = loss_scale(stage, self.epoch, self.next_step, self._steps_per_epoch)
        torch.autograd.backward(self.scaler.scale(loss if scale == 1 else loss * scale))
        self._ranks.sum_gradients(self.parameters)
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradient(self.parameters, stage.grad_clip)
        if not self.scaler.is_enabled():  # with fp16 the scaler skips the steps that overflow
            check_finite(norm, f"epoch {self.epoch + 1}, step {self.next_step + 1}")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.next_step += 1
        self._record_step(stats, {**extra, "weight_grad_norm": float(norm)})
        self.seconds += time.perf_counter() - began + shared_s

    @property
    def position(self) -> tuple[int, int, int]:
        """Epoch and step that come next, both counted from 0, and steps per epoch."""
        return self.epoch, self.next_step, self._steps_per_epoch

    def take_step(self, outcome: StepOutcome, *, seconds: float) -> None:
        """Record a step that a stack of cells took for this one.

        Args:
            outcome: its numbers, or the error with which it failed.
            seconds: this cell's share of the time.

        Raises:
            DivergedError: the gradient is not finite.
            CollapsedError: as of :meth:`step`.
        """
        if isinstance(outcome, Exception):
            raise outcome
        norm = torch.tensor(outcome["weight_grad_norm"])
        check_finite(norm, f"epoch {self.epoch + 1}, step {self.next_step + 1}")
        self.next_step += 1
        self._record(outcome)
        self.seconds += seconds

    def _encode(self, inputs: Tensor, region_lengths: Tensor | None, tokens: Tensor, lengths: Tensor) -> Pairs:
        stage = self.unit.stage
        trains = stage.trains_backbone and self.epoch >= stage.frozen_epochs
        with torch.set_grad_enabled(trains and torch.is_grad_enabled()):  # the first of two passes keeps nothing
            features = self._features(inputs)
        return self.heads.forward_pairs(features, region_lengths, tokens, lengths)

    def _features(self, inputs: Tensor) -> Tensor:
        if self.backbone is None or self.unit.stage.bn_mode == "frozen_eval":
            return self.encoder.features(inputs)
        done = self.steps_before + self.epoch * self._steps_per_epoch
        self.backbone.use_batch_statistics(not validated_since(done, self.next_step))
        features = self.encoder.features(inputs)
        self.backbone.use_batch_statistics(False)
        return features

    def _record_step(self, stats: ObjectiveStats, extra: dict[str, float]) -> None:
        self._record({**stats.as_dict(), **extra})
        self.triplets.add(stats)

    def _record(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            total, count = self.sums.get(key, (0.0, 0))
            self.sums[key] = (total + value, count + 1)
        if self.epoch >= self.unit.stage.warmup_epochs and self.collapse.update(values["hinge"], values["triplets"]):
            raise CollapsedError(
                f"the hinge has stayed within 1 % of 2 x batch x margin for {self.unit.stage.collapse_patience} steps "
                f"(epoch {self.epoch + 1}): every negative is as near as its positive"
            )

    def close_epoch(
        self, val_recalls: Mapping[str, float], *, val_s: float, test_rsum: float | None = None
    ) -> EpochRecord:
        """End the epoch: record it, save the weights if they are the best so far, and save the state.

        Args:
            val_recalls: recalls on the val split, `val/...`.
            val_s: seconds that computing them took.
            test_rsum: of the test split, where the stage selects on that.
        """
        self.epoch, self.next_step = self.epoch + 1, 0
        train_s = self.seconds - sum(record["metrics"]["time/train_s"] for record in self.history)
        metrics = {
            **{f"train/{key}": total / count for key, (total, count) in self.sums.items()},
            "train/lr": lr_at(self.unit.stage, self.epoch - 1, self._steps_per_epoch - 1, self._steps_per_epoch),
            **val_recalls,
            "time/train_s": train_s,
            "time/step_ms": 1000 * train_s / self._steps_per_epoch,
            "time/val_s": val_s,
        }
        if test_rsum is not None:
            metrics["selection/test_rsum"] = test_rsum
        record = EpochRecord(epoch=self.epoch, time=time.time(), metrics=metrics)
        self.history.append(record)
        self.sums = {}
        self.triplets.close_epoch(self.epoch)
        # The weights of a warm-up epoch do not represent the objective, however good their recall.
        rsum = val_recalls["val/rsum"] if test_rsum is None else test_rsum
        better = self.best_rsum is None or rsum > self.best_rsum
        if self.epoch > self.unit.stage.warmup_epochs and better:
            before, self.best_rsum, self.best_epoch = self.best_epoch, rsum, self.epoch
            self.save_best()
        else:
            before = 0
        self.save_last()
        if before:
            self.files.discard(best_name(before))  # only now: until here the saved state referred to it
        self._write_records()
        return record

    def save_best(self) -> None:
        """Save the weights that the next stage starts from and that `evaluate` reads."""
        tensors = with_prefix("heads", self.heads.state_dict())
        backbone = self.backbone or self._kept_backbone
        if backbone is not None:
            tensors |= with_prefix("backbone", backbone.state_dict())
        name = best_name(self.best_epoch)
        epoch, key = self.epoch, self.key
        self.files.save_with(
            name, lambda path: write_model(path, tensors, self._description, epoch=epoch, training=key)
        )

    def _state(self) -> tuple[Parts, Parts]:
        """Everything from which training continues exactly: the tensors and the values in `last.safetensors`."""
        path, optimizer = self.files.path(LAST), self.optimizer
        modules = {"heads": self.heads} if self.backbone is None else {"heads": self.heads, "backbone": self.backbone}
        tensors: Parts = {
            **{name: (net.state_dict, partial(load_module, net, source=path)) for name, net in modules.items()},
            "optimizer": (partial(optimizer_tensors, optimizer), partial(restore_optimizer, optimizer)),
            "random": (self.stream.state, self.stream.restore),
            "triplets": (self.triplets.tensors, self.triplets.restore),
        }
        values: Parts = {
            **{name: _attribute(self, name) for name in ("epoch", "next_step", "steps_before", "seconds", "sums")},
            **{name: _attribute(self, name) for name in ("best_epoch", "best_rsum")},
            "history": (lambda: self.history, self._restore_history),
            "collapse": _attribute(self.collapse, "num_steps"),
            "scaler": (self.scaler.state_dict, self.scaler.load_state_dict),
        }
        return tensors, values

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything from which training continues exactly."""
        parts, values = self._state()
        tensors = {key: value for name, (get, _) in parts.items() for key, value in with_prefix(name, get()).items()}
        return tensors, {TRAINING: self.key} | {name: get() for name, (get, _) in values.items()}

    def restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave."""
        parts, values = self._state()
        for name, (_, put) in parts.items():
            put(take_prefix(name, tensors))
        state = {"steps_before": 0, **state}  # which earlier versions did not write
        for name, (_, put) in values.items():
            put(state[name])
        self._saved = self.epoch, self.next_step

    def save_last(self) -> None:
        """Save everything from which training continues exactly."""
        tensors, state = self.state()
        self.files.save_with(LAST, lambda path: write_checkpoint(path, tensors, state))
        self._saved = self.epoch, self.next_step

    def save_unsaved(self) -> None:
        """Save the state, unless the disk has it already. After the last epoch the weights may be the best epoch's."""
        if self._saved != (self.epoch, self.next_step):
            self.save_last()

    def resume(self) -> bool:
        """Continue from the newest saved state that is whole, if there is one. Damaged files are logged and set aside.

        Raises:
            WeightsError: the file belongs to another model.
            StorageError: a file cannot be read.
        """
        for path in self.files.versions(LAST):
            try:
                tensors, state = read_of_training(path, self.key)
            except DamagedError as error:
                self.files.log(f"an earlier state is lost: {error}")
                self.files.set_aside(path)
                continue
            if state["best_epoch"] and not self._has_best(state["best_epoch"]):
                self.files.log(f"{path.name} cannot be continued, because its best weights are lost")
                continue
            self.restore(tensors, state)
            # A crash may have come between the state and the files that follow it; the state is what counts.
            self._write_records()
            return True
        return False

    def _has_best(self, epoch: int) -> bool:
        """Whether the weights of the best epoch are there and whole."""
        path = self._best_path(epoch)
        if not path.exists():
            return False
        try:
            _, state = read_of_training(path, self.key)
        except DamagedError as error:
            self.files.log(f"the best weights are lost: {error}")
            self.files.set_aside(path)
            return False
        return bool(state["epoch"] == epoch)

    def _best_path(self, epoch: int) -> Path:
        path = self.files.path(best_name(epoch))
        return path if path.exists() else self.files.path(BEST)  # as earlier versions named it

    def _restore_history(self, records: list[dict[str, Any]]) -> None:
        self.history = [EpochRecord(epoch=row["epoch"], time=row["time"], metrics=row["metrics"]) for row in records]

    def _write_records(self) -> None:
        self.files.write_metrics(self.history)
        if self.history:
            self.triplets.save(self.files, self._objective_config)

    def refuse_collapsed(self) -> None:
        """Fail a cell that ends its stage collapsed, however few steps it had.

        After few steps the hinge alone cannot tell: that of a healthy cell is near its collapsed value too.

        Raises:
            CollapsedError: no query of the split it selects on ever had its match among the first ten.
        """
        if self.unit.stage.collapse_patience and self.best_rsum == 0:
            raise CollapsedError(
                f"no {self.unit.stage.select_on} query has its match among the first ten after any epoch"
            )

    def load_best(self) -> None:
        """Return to the weights of the best epoch, for the test.

        Raises:
            DamagedError: the file is damaged, and now set aside, or has the weights of another epoch.
        """
        path = self._best_path(self.best_epoch)
        try:
            state = self._load_weights(path, self.key)
        except DamagedError:
            self.files.set_aside(path)
            raise
        if state["epoch"] != self.best_epoch:
            raise DamagedError(f"{path} has the weights of epoch {state['epoch']}, not of {self.best_epoch}")

    def start_from(self, path: Path, training: str) -> None:
        """Load the previous stage's best weights. A backbone that it did not train is not in the file.

        Args:
            path: the file.
            training: the key of the previous stage's training.

        Raises:
            DamagedError: the file is missing or damaged, or belongs to another training.
        """
        self.steps_before = self._load_weights(path, training)["epoch"] * self._steps_per_epoch

    def _load_weights(self, path: Path, training: str) -> dict[str, Any]:
        tensors, state = read_of_training(path, training)
        load_module(self.heads, take_prefix("heads", tensors), path)
        backbone = take_prefix("backbone", tensors)
        if self.backbone is not None and backbone:
            load_module(self.backbone, backbone, path)
        return state


def _attribute(owner: object, name: str) -> tuple[Callable[[], Any], Callable[[Any], object]]:
    return partial(getattr, owner, name), partial(setattr, owner, name)
