"""The evaluation of a unit's cells: after each epoch, and of their best weights at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from torch import Tensor

from goal_sweep.goal_core.basics.devices import ProcessLoad
from goal_sweep.goal_core.checkpoints import RANKS
from goal_sweep.goal_core.data import Dataset, Split
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.evaluation.recalls import EvalSplit, all_recalls_of, prepare_split, recalls_of
from goal_sweep.goal_core.training.cells.roster import Roster, fits_or_says
from goal_sweep.goal_core.training.cells.stack import SplitShare, Stacks
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.diagnostics import below_warmup, weak_objective
from goal_sweep.goal_core.training.plan import EpochDone, TrainingDone, UnitPlan


class Validation:
    """Evaluates the cells of a unit and records it."""

    def __init__(
        self,
        unit: UnitPlan,
        dataset: Dataset,
        tokenizer: Tokenizer,
        inputs_of: Callable[[Split], Callable[[], Iterator[Tensor]]],
        roster: Roster,
        stacks: Stacks,
        alive: Callable[[], None],
    ) -> None:
        self._unit, self._dataset, self._tokenizer, self._inputs_of = unit, dataset, tokenizer, inputs_of
        self._roster, self._stacks, self._alive = roster, stacks, alive
        self._splits: dict[str, EvalSplit] = {}
        self._load = ProcessLoad()

    def prepare(self, *names: str) -> None:
        """Prepare splits, so that evaluating on them needs the encoders alone."""
        for name in names:
            if name not in self._splits:
                split = self._dataset.splits[name]
                with fits_or_says(f"the images of {name}"):
                    inputs = self._inputs_of(split)
                self._splits[name] = prepare_split(split, self._tokenizer, inputs, self._alive)

    def close_epoch(self, cells: Sequence[CellTrainer], waited: float) -> None:
        """Evaluate cells whose epoch has ended, record it, and save states, and weights that are the best."""
        names = sorted({"val", self._unit.stage.select_on}) if cells else []
        embedded = {name: self._stacks.embed(cells, self._splits[name]) for name in names}
        load = {"time/data_wait_share": waited, **self._load.metrics()}
        self._roster.each(
            lambda cell: self._close(cell, {name: shares.get(cell.key) for name, shares in embedded.items()}, load),
            cells,
        )

    def _close(self, cell: CellTrainer, shares: dict[str, SplitShare | None], load: Mapping[str, float]) -> None:
        def recalls_on(name: str) -> dict[str, float]:
            share = shares[name]
            with fits_or_says(f"the evaluation on {name}"):
                return recalls_of(cell.encoder, self._splits[name], share and share[0])

        began, val = time.perf_counter(), shares["val"]
        recalls = recalls_on("val")
        took = time.perf_counter() - began + (val[1] if val else 0.0)
        test_rsum = recalls_on("test")["test/rsum"] if self._unit.stage.select_on == "test" else None
        record = cell.close_epoch(recalls, val_s=took, of_unit=load, test_rsum=test_rsum)
        shown = record["metrics"]
        cell.files.log(
            f"epoch {record['epoch']}/{self._unit.stage.epochs}  lr {shown['train/lr']:g}  "
            f"hinge {shown['train/hinge']:.2f}  pos {shown['train/pos_sim']:.3f}  neg {shown['train/neg_sim']:.3f}  "
            f"val R@1 {shown['val/i2t_r1']:.1f} / {shown['val/t2i_r1']:.1f}  rsum {shown['val/rsum']:.1f}  "
            f"{shown['time/step_ms']:.0f} ms/step, {load['time/data_wait_share']:.0%} waiting for data"
        )
        if weak := weak_objective([record], cell.stage.warmup_epochs):
            cell.files.log(f"WEAK OBJECTIVE: {weak}; the encoders train almost by matching alone")
        self._roster.note(EpochDone(key=cell.key, record=record))

    def finish(self) -> None:
        """Test the best weights of all cells, unless they are candidates, and write the results."""
        cells, tested = self._roster.cells, self._unit.tested
        if cells and tested:
            self.prepare("test")
        self._roster.each(CellTrainer.return_to_best)
        embedded = self._stacks.embed(list(cells.values()), self._splits["test"]) if cells and tested else {}
        self._roster.each(lambda cell: self._finish(cell, embedded.get(cell.key)))

    def _finish(self, cell: CellTrainer, share: SplitShare | None) -> None:
        val = cell.history[cell.best_epoch - 1]["metrics"]
        if self._unit.tested:
            with fits_or_says("the evaluation on test"):
                recalls, ranks = all_recalls_of(cell.encoder, self._splits["test"], share and share[0])
            cell.files.save_with(RANKS, partial(ranks.save, text_to_image=self._splits["test"].caption_image))
            metrics = {**recalls, "val/rsum": val["val/rsum"]}
            shown = f"test R@1 {recalls['test/i2t_r1']:.1f} / {recalls['test/t2i_r1']:.1f}"
        else:
            metrics = {name: value for name, value in val.items() if name.startswith("val/")}
            shown = f"val rsum {metrics['val/rsum']:.1f}, not tested"
        cell.files.log(f"done: {shown} (best epoch {cell.best_epoch})")
        if below := below_warmup(cell.history, cell.stage.warmup_epochs, cell.best_epoch):
            cell.files.log(f"BELOW ITS WARM-UP: {below}; this result shows damage, not what the objective can do")
        self._roster.end(TrainingDone(key=cell.key, result=cell.finish(metrics)))
