"""The steps of one cell: forward pass, the objective's gradient, clipping, optimiser, and the close of an epoch.

The numbers of a step are read when the next one has been queued, so that reading them makes no device wait. A step that
went wrong is therefore noticed one step later, but before anything is evaluated or saved.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import fetched
from goal_sweep.goal_core.basics.errors import CollapsedError, DivergedError
from goal_sweep.goal_core.checkpoints import best_name
from goal_sweep.goal_core.data.batches import Batch
from goal_sweep.goal_core.models.batch_rows import in_chunks
from goal_sweep.goal_core.models.heads import Pairs
from goal_sweep.goal_core.objectives.gradient_objective import NonFiniteError
from goal_sweep.goal_core.objectives.stats import ObjectiveStats, describe_unsound, is_collapsed, named
from goal_sweep.goal_core.training.cells import optim
from goal_sweep.goal_core.training.cells.state import CellState
from goal_sweep.goal_core.training.plan import EpochRecord

StepOutcome = Callable[[], dict[str, float]]
"""Waits for a step, and gives its numbers to record, or raises why it failed."""


class CellTrainer(CellState):
    """A cell that takes steps and closes epochs.

    It does not depend on the other cells of the unit: a cell's numbers are those it would have alone, in a stack but
    for rounding.
    """

    _unsettled: tuple[str, StepOutcome] | None = None
    """The last step, as long as its numbers are not recorded: which one it is, and what came of it."""

    def step(self, inputs: Tensor, batch: Batch, *, shared_s: float = 0.0) -> None:
        """One optimiser step.

        Args:
            inputs: frozen features (B, F) or (B, R, F), or pixels (B, 3, S, S) for the cell's own backbone.
        """
        began, stage = time.perf_counter(), self.stage
        optim.set_lr(self.optimizer, optim.lr_at(stage, self.epoch, self.next_step, self._steps_per_epoch))
        self.optimizer.zero_grad(set_to_none=True)
        self.encoder.train(True)
        with self.stream.active():
            pairs = self._pairs(inputs, batch)
        surrogate, stats = self._descended(pairs.image_BD, pairs.text_BD, batch)
        if self.heads.scales_objective:
            surrogate = surrogate * self.scales[self.term]
        with self.stream.active():
            loss, extra = self.heads.total_loss(surrogate, pairs, batch.image_index)
        scale = optim.loss_scale(stage, self.epoch, self.next_step, self._steps_per_epoch)
        torch.autograd.backward(loss if scale == 1 else loss * scale)
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, stage.grad_clip or math.inf)
        outcome = _outcome(stats, {**extra, **self.heads.take_gradient_norms(), "weight_grad_norm": norm})
        self.optimizer.step()
        self._advance(outcome, time.perf_counter() - began + shared_s)

    def _descended(self, image_BD: Tensor, text_BD: Tensor, batch: Batch) -> tuple[Tensor, ObjectiveStats]:
        """The scalar whose gradient the step takes, a sum over the batch, and the objective's statistics."""
        ids = batch.image_index if self.heads.masks_same_image else None
        scalar, stats = self.objective.forward_with_stats(image_BD, text_BD, ids)
        if self.term == "hinge":
            scalar = optim.sum_hinge(image_BD, text_BD, self.objective.margin, ids)
        return scalar, stats

    @property
    def _at(self) -> str:
        return f"epoch {self.epoch + 1}, step {self.next_step + 1}"

    @property
    def term(self) -> str:
        """What the next step descends: `hinge` in a warm-up epoch, otherwise `objective`."""
        return "hinge" if self.epoch < self.stage.warmup_epochs else "objective"

    @property
    def wants_scale(self) -> bool:
        """Whether what the next step descends has no scale yet, and needs one."""
        return self.heads.scales_objective and self.term not in self.scales

    def measure(self, inputs: Tensor, batch: Batch) -> tuple[float, float]:
        """Norms of the gradients of the objective and of the loss that it replaces, on the embeddings of a batch.

        The model is in evaluation mode, so that nothing is drawn and no state changes.
        """
        self.encoder.train(False)
        with torch.no_grad():
            pairs = replace(self._pairs(inputs, batch), context=())
        _, stats = self._descended(pairs.image_BD, pairs.text_BD, batch)
        if not stats.sound:
            raise NonFiniteError(f"{self._at}: {_unsound(stats)}")
        own = optim.gradient_norm(lambda image, text: self._descended(image, text, batch)[0] / (2 * len(batch)), pairs)
        ids = batch.image_index
        return own, optim.gradient_norm(lambda image, text: self.heads.replaced_loss(image, text, ids), pairs)

    def set_scale(self, norms: Sequence[tuple[float, float]]) -> None:
        """Scale what the next steps descend, by what :meth:`measure` gave of each batch."""
        self.scales[self.term] = optim.scale_from(norms)
        why = "its gradient on the embeddings of the first batches is as large as that of the loss it replaces"
        self.files.log(f"scale of the {self.term}: {self.scales[self.term]:.6g}, with which {why}")

    @property
    def position(self) -> tuple[int, int, int]:
        """Epoch and step that come next, both counted from 0, and steps per epoch."""
        return self.epoch, self.next_step, self._steps_per_epoch

    def take_step(self, outcome: StepOutcome | Exception, seconds: float) -> None:
        """Record a step that a stack of cells took for this one, or raise why it could not."""
        if isinstance(outcome, Exception):
            raise outcome
        self._advance(outcome, seconds)

    def _advance(self, outcome: StepOutcome, seconds: float) -> None:
        at = self._at
        self.next_step += 1
        self.seconds += seconds
        self.settle()
        self._unsettled = at, outcome

    def settle(self) -> None:
        """Wait for the last step and record it, or raise why it failed."""
        if self._unsettled is None:
            return
        (at, outcome), began = self._unsettled, time.perf_counter()
        try:
            values = outcome()
        except NonFiniteError as error:
            raise NonFiniteError(f"{at}: {error}") from None
        if not math.isfinite(norm := values["weight_grad_norm"]):
            raise DivergedError(f"the gradient is not finite (norm {norm}) at {at}")
        self._unsettled = None  # not before: what failed must never be saved
        self._record(values)
        self.seconds += time.perf_counter() - began

    def _pairs(self, inputs: Tensor, batch: Batch) -> Pairs:
        """The pairs of a batch, encoded in chunks where the stage asks for it."""
        kind: list[Pairs] = []

        def columns(*tensors: Any) -> tuple[Tensor, ...]:
            pairs = self._encode(*tensors)
            if not kind:  # that of the first pass, for those of the second hold activations
                kind.append(pairs)
            return pairs.image_BD, pairs.text_BD, *pairs.context

        captions = (batch.region_lengths, batch.tokens, batch.lengths)
        chunk = self.stage.micro_batch
        image_BD, text_BD, *context = in_chunks(columns, len(batch), chunk, inputs, *captions)
        return replace(kind[0], image_BD=image_BD, text_BD=text_BD, context=tuple(context), chunk=chunk)

    def _encode(self, inputs: Tensor, region_lengths: Tensor | None, tokens: Tensor, lengths: Tensor) -> Pairs:
        trains = self.stage.trains_backbone and self.epoch >= self.stage.frozen_epochs
        with torch.set_grad_enabled(trains and torch.is_grad_enabled()):  # the first of two passes keeps nothing
            features, tokens = self._features(inputs), self.encoder.text_features(tokens, lengths)
        return self.heads.forward_pairs(features, region_lengths, tokens, lengths)

    def _features(self, inputs: Tensor) -> Tensor:
        if self.backbone is None or self.stage.bn_mode == "frozen_eval":
            return self.encoder.features(inputs)
        done = self.steps_before + self.epoch * self._steps_per_epoch
        self.backbone.use_batch_statistics(not optim.validated_since(done, self.next_step))
        features = self.encoder.features(inputs)
        self.backbone.use_batch_statistics(False)
        return features

    def _record(self, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            total, count = self.sums.get(key, (0.0, 0))
            self.sums[key] = (total + value, count + 1)
        if self.epoch < self.stage.warmup_epochs:
            return
        collapsed = is_collapsed(values["hinge"], values["triplets"], self.objective.margin)
        self.collapse = self.collapse + 1 if collapsed else 0
        if 0 < self.stage.collapse_patience <= self.collapse:
            long = f"{self.stage.collapse_patience} steps (epoch {self.epoch + 1})"
            near = f"within 1 % of 2 x batch x margin for {long}: every negative is as near as its positive"
            raise CollapsedError(f"the hinge has stayed {near}")

    def save_last(self) -> None:
        """Save everything from which training continues exactly, unless the last step failed."""
        self.settle()
        super().save_last()

    def close_epoch(
        self, val_recalls: Mapping[str, float], *, val_s: float, of_unit: Mapping[str, float], test_rsum: float | None
    ) -> EpochRecord:
        """End the epoch: record it, save the weights if they are the best so far, and save the state."""
        scale = {"train/objective_scale": self.scales[self.term]} if self.scales else {}
        self.epoch, self.next_step = self.epoch + 1, 0
        train_s = self.seconds - sum(record["metrics"]["time/train_s"] for record in self.history)
        metrics = {
            **{f"train/{key}": total / count for key, (total, count) in self.sums.items()},
            **scale,
            "train/lr": optim.lr_at(self.stage, self.epoch - 1, self._steps_per_epoch - 1, self._steps_per_epoch),
            **val_recalls,
            "time/train_s": train_s,
            "time/step_ms": 1000 * train_s / self._steps_per_epoch,
            "time/val_s": val_s,
            **of_unit,
        }
        metrics |= optim.ratio(metrics)
        if test_rsum is not None:
            metrics["selection/test_rsum"] = test_rsum
        record = EpochRecord(epoch=self.epoch, time=time.time(), metrics=metrics)
        self.history.append(record)
        self.sums = {}
        # The weights of a warm-up epoch do not represent the objective, however good their recall.
        rsum = val_recalls["val/rsum"] if test_rsum is None else test_rsum
        better = self.best_rsum is None or rsum > self.best_rsum
        superseded = 0
        if self.epoch > self.stage.warmup_epochs and better:
            superseded, self.best_rsum, self.best_epoch = self.best_epoch, rsum, self.epoch
            self.save_best()
        self.save_last()
        if superseded:
            self.files.discard(best_name(superseded))  # only now: until here a state that may count referred to it
        self.files.write_metrics(self.history)
        return record

    def return_to_best(self) -> None:
        """Load the best epoch's weights at the end of the stage, unless the cell has collapsed, however few its steps.

        After few steps the hinge alone cannot tell: that of a healthy cell is near its collapsed value too.
        """
        if self.stage.collapse_patience and self.best_rsum == 0:
            raise CollapsedError(f"no {self.stage.select_on} query has its match among the first ten after any epoch")
        self._load_weights(self.files.path(best_name(self.best_epoch)), self.key, self.best_epoch)


def _outcome(stats: ObjectiveStats, own: Mapping[str, Tensor]) -> StepOutcome:
    names, numbers_K = stats.numbers()
    others = torch.stack([value.to(numbers_K) for value in (*own.values(), stats.sound)])
    numbers = fetched(torch.cat((numbers_K, others)))

    def outcome() -> dict[str, float]:
        *values, sound = numbers().tolist()
        if not sound:
            raise NonFiniteError(_unsound(stats))
        return named(names, values[: len(names)]) | dict(zip(own, values[len(names) :], strict=True))

    return outcome


def _unsound(stats: ObjectiveStats) -> str:
    return describe_unsound(images=stats.gradient.images, texts=stats.gradient.texts)
