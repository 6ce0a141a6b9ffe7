"""The cells of a unit that are still in training, what became of the others, their batches, and their evaluation."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from traceback import clear_frames

import torch
from torch import Tensor

from goal_sweep.goal_core.basics.devices import ProcessLoad, is_out_of_memory
from goal_sweep.goal_core.basics.errors import FencedError, TooLargeError, first_line
from goal_sweep.goal_core.checkpoints import RANKS
from goal_sweep.goal_core.data import Dataset, Split
from goal_sweep.goal_core.data.batches import Batch, BatchSource
from goal_sweep.goal_core.data.text import Tokenizer
from goal_sweep.goal_core.evaluation.recalls import EvalSplit, all_recalls_of, prepare_split, recalls_of
from goal_sweep.goal_core.training import plan
from goal_sweep.goal_core.training.cells.stack import SplitShare, Stacks
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.diagnostics import below_warmup, weak_objective


@contextmanager
def fits_or_says(what: str) -> Iterator[None]:
    """Around work whose memory does not depend on the batch: running out of it becomes a `TooLargeError`."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        way_out = "give units fewer cells (cells_per_unit) or a device with more memory"
        raise TooLargeError(f"{what} does not fit into memory; {way_out} ({first_line(error)})") from error


class Roster:
    """The cells of a unit; one that fails leaves it."""

    def __init__(self, files: Mapping[str, plan.TrainingFiles], callback: plan.Callback) -> None:
        self.cells: dict[str, CellTrainer] = {}
        """By key."""
        self.outcomes: list[plan.TrainingDone | plan.TrainingFailed] = []
        """How trainings have ended, in order."""
        self._files, self._callback = files, callback
        self._events: list[plan.TrainingEvent] = []

    def at(self, epoch: int, step: int) -> list[CellTrainer]:
        """The cells whose next step this is. The number of steps of an epoch means that all of them are done."""
        return [cell for cell in self.cells.values() if (cell.epoch, cell.next_step) == (epoch, step)]

    def each(self, act: Callable[[CellTrainer], object], cells: Iterable[CellTrainer] | None = None) -> None:
        """Do something with each cell, or with some; one for which it raises fails alone."""
        for cell in list(self.cells.values() if cells is None else cells):
            if cell.key in self.cells:
                with self.failing_alone(cell.key):
                    act(cell)

    @contextmanager
    def failing_alone(self, key: str) -> Iterator[None]:
        """If the block raises, this training fails and leaves the unit; the others go on."""
        try:
            yield
        except FencedError:  # another attempt owns the training now, so nothing may be written
            self.cells.pop(key, None)
        except Exception as error:
            self.cells.pop(key, None)
            failed = plan.TrainingFailed.because_of(key, error)
            clear_frames(error.__traceback__)  # they hold the activations
            self.end(failed)
            with suppress(OSError):  # the disk that failed this training must not fail its neighbours
                self._files[key].log(f"failed ({failed.kind}): {failed.reason}")
            if torch.cuda.is_available():
                gc.collect()  # a backbone and its program know one another
                with suppress(RuntimeError):  # a graph whose recording failed may forbid it
                    torch.cuda.empty_cache()

    def note(self, event: plan.TrainingEvent) -> None:
        """Keep an event for the callback."""
        self._events.append(event)

    def end(self, outcome: plan.TrainingDone | plan.TrainingFailed) -> None:
        """Note how a training ended."""
        self.note(outcome)
        self.outcomes.append(outcome)

    def tell(self) -> None:
        """Tell the callback what has happened since the last time."""
        if self._events:
            self._callback.events(tuple(self._events))
            self._events = []


class EpochBatches:
    """The batches of an epoch that a cell needs, each with its step, as long as a cell is in this epoch."""

    def __init__(self, source: BatchSource, roster: Roster, epoch: int) -> None:
        self._source, self._roster, self._epoch = source, roster, epoch
        self.waited = 0.0
        """Seconds of waiting for a batch to be read, decoded and augmented, as far as that is not done in advance."""
        self._passed = 0.0

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        cells, steps, began = self._roster.cells, self._source.steps_per_epoch, time.perf_counter()
        step = min((cell.next_step for cell in cells.values() if cell.epoch == self._epoch), default=steps)
        batches = self._source.batches(self._epoch + 1, start_step=step)
        while any(cell.epoch == self._epoch for cell in cells.values()):
            asked = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - asked
            if batch is None:
                return
            if self._roster.at(self._epoch, step):
                yield step, batch
            self._passed, step = time.perf_counter() - began, step + 1

    @property
    def share_waited(self) -> float:
        """The share of the time so far in which the loop waited for a batch, in [0, 1]."""
        return self.waited / self._passed if self._passed else 0.0


class Validation:
    """Evaluates the cells of a unit and records it."""

    def __init__(
        self,
        unit: plan.UnitPlan,
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
        self._roster.each(CellTrainer.settle, cells)
        cells = [cell for cell in cells if cell.key in self._roster.cells]
        names: list[str] = sorted({"val", self._unit.stage.select_on}) if cells else []
        embedded = {name: self._stacks.embed(cells, self._splits[name]) for name in names}
        load = {"time/data_wait_share": waited, **self._load.metrics()}
        self._roster.each(lambda cell: self._close(cell, embedded, load), cells)

    def _close(
        self, cell: CellTrainer, embedded: Mapping[str, Mapping[str, SplitShare]], load: Mapping[str, float]
    ) -> None:
        def recalls_on(name: str) -> dict[str, float]:
            share = embedded[name].get(cell.key)
            with fits_or_says(f"the evaluation on {name}"):
                return recalls_of(cell.encoder, self._splits[name], share and share[0])

        began, val = time.perf_counter(), embedded["val"].get(cell.key)
        recalls = recalls_on("val")
        took = time.perf_counter() - began + (val[1] if val else 0.0)
        test_rsum = recalls_on("test")["test/rsum"] if self._unit.stage.select_on == "test" else None
        record = cell.close_epoch(recalls, val_s=took, of_unit=load, test_rsum=test_rsum)
        shown = record["metrics"]
        warm = " (warm-up)" * (record["epoch"] <= cell.stage.warmup_epochs)
        cell.files.log(
            f"epoch {record['epoch']}/{self._unit.stage.epochs}{warm}  lr {shown['train/lr']:g}  "
            f"hinge {shown['train/hinge']:.2f}  pos {shown['train/pos_sim']:.3f}  neg {shown['train/neg_sim']:.3f}  "
            f"val R@1 {shown['val/i2t_r1']:.1f} / {shown['val/t2i_r1']:.1f}  rsum {shown['val/rsum']:.1f}  "
            f"{shown['time/step_ms']:.0f} ms/step, {load['time/data_wait_share']:.0%} waiting for data"
        )
        if weak := weak_objective([record], cell.stage.warmup_epochs):
            cell.files.log(f"WEAK OBJECTIVE: {weak}; the encoders train almost by matching alone")
        self._roster.note(plan.EpochDone(key=cell.key, record=record))

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
        self._roster.end(plan.TrainingDone(key=cell.key, result=cell.finish(metrics)))
