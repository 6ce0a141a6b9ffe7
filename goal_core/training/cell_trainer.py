"""One cell in training: its weights, optimiser, random stream, position, history and best epoch."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor

from goal_core.checkpoints.description import ModelDescription
from goal_core.checkpoints.file import (
    load_module,
    optimizer_tensors,
    read_checkpoint,
    restore_optimizer,
    take_prefix,
    with_prefix,
    write_checkpoint,
)
from goal_core.data import Batch
from goal_core.errors import WeightsError
from goal_core.models import Heads, ImageBackbone
from goal_core.models.encoder import Encoder
from goal_core.objectives import CollapseDetector, ObjectiveStats
from goal_core.seeding import RandomStream, derive_seed
from goal_core.training.failures import CollapsedError
from goal_core.training.optim import (
    build_optimizer,
    check_finite,
    clip_gradient,
    loss_scale,
    lr_at,
    parameter_groups,
    set_lr,
    validated_since,
)
from goal_core.training.plan import EpochRecord, TrainingFiles, TrainingPlan, UnitPlan
from goal_core.training.triplet_histogram import TripletHistogram
from goal_core.training.warmup import sum_hinge

LAST, BEST = "last.safetensors", "best.safetensors"


class CellTrainer:
    """The state of one cell and the one step that moves it.

    Nothing here knows of the other cells of the unit: a cell's numbers are those it would have alone.

    Args:
        plan: the cell.
        unit: what it shares with its siblings.
        heads: the trainable heads, on the device.
        backbone: the cell's own backbone when the stage trains it; None when the unit's frozen one is shared.
        folder: where its files lie.
        card: what its checkpoints say of themselves.
        steps_per_epoch: optimiser steps.
        keep_backbone: also save the backbone that the frozen stage did not change (its weights exist nowhere else).
    """

    def __init__(
        self,
        plan: TrainingPlan,
        unit: UnitPlan,
        heads: Heads,
        backbone: ImageBackbone | None,
        folder: TrainingFiles,
        card: ModelDescription,
        *,
        steps_per_epoch: int,
        keep_backbone: ImageBackbone | None = None,
    ) -> None:
        self.key, self.cell_id = plan.key, plan.cell_id
        self.unit, self.folder, self._card = unit, folder, card
        self.heads, self.backbone, self._kept = heads, backbone, keep_backbone
        device = torch.device(unit.device)
        self.encoder = Encoder(heads=heads, backbone=backbone, precision=unit.precision, device=device)
        self.objective = plan.objective.build()
        self.triplets = TripletHistogram(device)
        self._objective_config = plan.objective
        self._steps_per_epoch = steps_per_epoch
        groups = parameter_groups(heads, backbone, unit.stage)
        self.parameters = [parameter for group in groups for parameter in group.parameters]
        self.optimizer = build_optimizer(groups, unit.stage)
        self.scaler = torch.amp.GradScaler(device.type, enabled=unit.precision == "fp16")
        self.stream = RandomStream(derive_seed(unit.seed, "train", unit.stage.name), device)
        self.collapse = CollapseDetector(margin=self.objective.margin, patience=unit.stage.collapse_patience)
        self.epoch, self.next_step = 0, 0
        self.best_rsum, self.best_epoch = float("-inf"), 0
        self.history: list[EpochRecord] = []
        self.seconds = 0.0
        self._steps_before = 0
        self._sums: dict[str, tuple[float, int]] = {}

    def step(self, inputs: Tensor, batch: Batch) -> None:
        """One optimiser step.

        Args:
            inputs: frozen features (B, F) or (B, R, F), or pixels (B, 3, S, S) when the stage trains the backbone.
            batch: the captions, on the device.

        Raises:
            DivergedError: the gradient is not finite.
            NonFiniteError: the embeddings are not finite.
            CollapsedError: the hinge has been pinned at the margin for too long.
        """
        stage = self.unit.stage
        set_lr(self.optimizer, lr_at(stage, self.epoch, self.next_step, self._steps_per_epoch))
        self.optimizer.zero_grad(set_to_none=True)
        self.encoder.train(True)
        with self.stream.active(), self.encoder.autocast():
            with torch.set_grad_enabled(stage.trains_backbone and self.epoch >= stage.frozen_epochs):
                features = self._features(inputs)
            pairs = self.heads.forward_pairs(features, batch.region_lengths, batch.tokens, batch.lengths)
        ids = batch.ids if self.heads.masks_same_image else None
        surrogate, stats = self.objective.forward_with_stats(pairs.image_BD, pairs.text_BD, ids)
        if self.epoch < stage.warmup_epochs:
            surrogate = sum_hinge(pairs.image_BD, pairs.text_BD, self.objective.margin, ids)
        with self.stream.active(), self.encoder.autocast():
            loss, extra = self.heads.total_loss(surrogate, pairs, batch.ids)
        scale = loss_scale(stage, self.epoch, self.next_step, self._steps_per_epoch)
        torch.autograd.backward(self.scaler.scale(loss if scale == 1 else loss * scale))
        self.scaler.unscale_(self.optimizer)
        norm = clip_gradient(self.parameters, stage.grad_clip)
        if not self.scaler.is_enabled():  # fp16 overflows are the scaler's to skip
            check_finite(norm, f"epoch {self.epoch + 1}, step {self.next_step + 1}")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.next_step += 1
        self._observe(stats, {**extra, "weight_grad_norm": float(norm)})
        self.triplets.add(stats)

    def _features(self, inputs: Tensor) -> Tensor:
        if self.backbone is None or self.unit.stage.bn_mode == "frozen_eval":
            return self.encoder.features(inputs)
        done = self._steps_before + self.epoch * self._steps_per_epoch
        self.backbone.use_batch_statistics(not validated_since(done, self.next_step))
        features = self.encoder.features(inputs)
        self.backbone.use_batch_statistics(False)
        return features

    def _observe(self, stats: ObjectiveStats, extra: dict[str, float]) -> None:
        values = {**stats.as_dict(), **extra}
        for key, value in values.items():
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = (total + value, count + 1)
        if self.epoch >= self.unit.stage.warmup_epochs and self.collapse.update(values["hinge"], values["triplets"]):
            raise CollapsedError(
                f"the hinge has stayed within 1 % of 2 x batch x margin for {self.unit.stage.collapse_patience} steps "
                f"(epoch {self.epoch + 1}): every negative is as near as its positive"
            )

    def close_epoch(
        self, val: dict[str, float], timing: dict[str, float], test_rsum: float | None = None
    ) -> EpochRecord:
        """End the epoch: record it, save the weights if they are the best so far, and save the state.

        Args:
            val: recalls on the val split, by name without prefix.
            timing: seconds and other costs, by name without prefix.
            test_rsum: of the test split, where the stage selects on that.
        """
        self.epoch, self.next_step = self.epoch + 1, 0
        train = {f"train/{key}": total / count for key, (total, count) in self._sums.items()}
        train["train/lr"] = lr_at(self.unit.stage, self.epoch - 1, self._steps_per_epoch - 1, self._steps_per_epoch)
        metrics = {
            **train,
            **{f"val/{key}": value for key, value in val.items()},
            **{f"time/{key}": value for key, value in timing.items()},
        }
        if test_rsum is not None:
            metrics["selection/test_rsum"] = test_rsum
        record = EpochRecord(epoch=self.epoch, time=time.time(), metrics=metrics)
        self.history.append(record)
        self._sums = {}
        self.triplets.close_epoch(self.epoch)
        # A warm-up epoch is no model of the objective, however good its recall.
        rsum = val["rsum"] if test_rsum is None else test_rsum
        if self.epoch > self.unit.stage.warmup_epochs and rsum > self.best_rsum:
            self.best_rsum, self.best_epoch = rsum, self.epoch
            self.save_best()
        self.save_last()
        self._write_records()
        return record

    def save_best(self) -> None:
        """Save the weights that the next stage starts from and `evaluate` reads."""
        tensors = with_prefix("heads", self.heads.state_dict())
        backbone = self.backbone or self._kept
        if backbone is not None:
            tensors |= with_prefix("backbone", backbone.state_dict())
        state = {"epoch": self.epoch, "card": self._card.to_json()}
        self.folder.save_with(BEST, lambda path: write_checkpoint(path, tensors, state))

    def save_last(self) -> None:
        """Save everything from which training continues exactly."""
        tensors = with_prefix("heads", self.heads.state_dict())
        if self.backbone is not None:
            tensors |= with_prefix("backbone", self.backbone.state_dict())
        tensors |= with_prefix("optimizer", optimizer_tensors(self.optimizer))
        tensors |= with_prefix("random", self.stream.state())
        tensors |= with_prefix("triplets", self.triplets.tensors())
        state = {
            "epoch": self.epoch,
            "next_step": self.next_step,
            "best_rsum": self.best_rsum if self.best_epoch else None,
            "best_epoch": self.best_epoch,
            "history": self.history,
            "sums": self._sums,
            "collapse": self.collapse.num_steps,
            "scaler": self.scaler.state_dict(),
            "seconds": self.seconds,
            "steps_before": self._steps_before,
        }
        self.folder.save_with(LAST, lambda path: write_checkpoint(path, tensors, state))

    def resume(self) -> bool:
        """Continue from the last saved state, if there is one; one that cannot be read is logged and removed.

        Raises:
            WeightsError: the file is of another model.
        """
        path = self.folder.path(LAST)
        if not path.exists():
            return False
        try:
            tensors, state = read_checkpoint(path)
        except WeightsError as error:
            self.folder.log(f"the state after the last epoch is lost, so training begins anew: {error}")
            self.folder.discard(LAST)
            return False
        self._load_weights(tensors, path)
        restore_optimizer(self.optimizer, take_prefix("optimizer", tensors))
        self.stream.restore(take_prefix("random", tensors))
        self.triplets.restore(take_prefix("triplets", tensors))
        self.epoch, self.next_step = state["epoch"], state["next_step"]
        self.best_epoch = state["best_epoch"]
        self.best_rsum = float("-inf") if state["best_rsum"] is None else state["best_rsum"]
        self.history = [
            EpochRecord(epoch=row["epoch"], time=row["time"], metrics=row["metrics"]) for row in state["history"]
        ]
        self._sums = {key: (total, count) for key, (total, count) in state["sums"].items()}
        self.seconds, self._steps_before = state["seconds"], state.get("steps_before", 0)
        self.collapse.num_steps = state["collapse"]
        self.scaler.load_state_dict(state["scaler"])
        # A crash may have come between the state and the files beside it; the state is the truth.
        self._write_records()
        return True

    def _write_records(self) -> None:
        self.folder.write_metrics(self.history)
        if self.history:
            self.triplets.save(self.folder, self._objective_config)

    def refuse_collapsed(self) -> None:
        """Fail a cell that ends its stage collapsed, however few steps it had.

        The hinge alone does not tell after few steps: a healthy cell that has just begun is near the margin too.

        Raises:
            CollapsedError: no query of the split it selects on ever found its match among the first ten.
        """
        if self.unit.stage.collapse_patience and self.best_rsum == 0:
            raise CollapsedError(
                f"no {self.unit.stage.select_on} query has its match among the first ten after any epoch"
            )

    def load_best(self) -> None:
        """Go back to the weights of the best epoch, for the test."""
        path = self.folder.path(BEST)
        self._load_weights(read_checkpoint(path)[0], path)

    def start_from(self, path: Path) -> None:
        """Take the weights that the stage before ended with; a backbone it left untouched is not in the file."""
        tensors, state = read_checkpoint(path)
        self._load_weights(tensors, path)
        self._steps_before = state["epoch"] * self._steps_per_epoch

    def _load_weights(self, tensors: dict[str, Tensor], path: Path) -> None:
        load_module(self.heads, take_prefix("heads", tensors), path)
        backbone = take_prefix("backbone", tensors)
        if self.backbone is not None and backbone:
            load_module(self.backbone, backbone, path)

    def position(self) -> tuple[int, int]:
        """The (epoch, step), both from 0, that this cell trains next."""
        return self.epoch, self.next_step
