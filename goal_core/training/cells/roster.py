"""The cells of a unit that are still in training, what became of the others, and the batches that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from traceback import clear_frames

import torch

from goal_sweep.goal_core.basics.devices import is_out_of_memory
from goal_sweep.goal_core.basics.errors import FencedError, TooLargeError, first_line
from goal_sweep.goal_core.data.batches import Batch, BatchSource
from goal_sweep.goal_core.training.cells.trainer import CellTrainer
from goal_sweep.goal_core.training.plan import Callback, TrainingDone, TrainingEvent, TrainingFailed, TrainingFiles


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

    def __init__(self, files: Mapping[str, TrainingFiles], callback: Callback) -> None:
        self.cells: dict[str, CellTrainer] = {}
        """By key."""
        self.outcomes: list[TrainingDone | TrainingFailed] = []
        """How trainings have ended, in order."""
        self._files, self._callback = files, callback
        self._events: list[TrainingEvent] = []

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
            failed = TrainingFailed.because_of(key, error)
            clear_frames(error.__traceback__)  # they hold the activations
            self.end(failed)
            with suppress(OSError):  # the disk that failed this training must not fail its neighbours
                self._files[key].log(f"failed ({failed.kind}): {failed.reason}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def note(self, event: TrainingEvent) -> None:
        """Keep an event for the callback."""
        self._events.append(event)

    def end(self, outcome: TrainingDone | TrainingFailed) -> None:
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
        """Seconds in which the loop waited for a batch.

        That is reading, decoding and augmenting, as far as no process has done it in advance. What a batch then costs,
        a frozen backbone included, is not waiting.
        """
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
