"""Figures to files: the same bytes for the same numbers, and in a process of their own where there are many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.errors import AnalysisError

FEW = 12
"""From so many figures on, another process is worth its start."""
_Job = tuple[Callable[..., object], tuple[Any, ...]]
_UNDATED: dict[str, dict[str, str | None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any) -> None:
    """Draw a figure and save it.

    Args:
        paths: the files to write, ``.png``, ``.pdf`` or ``.svg``; their folders must exist.
        draw: returns the figure.
        arguments: what ``draw`` takes.
    """
    figure = draw(*arguments)
    with rc_context({"svg.hashsalt": "goal-sweep"}):
        for path in paths:
            figure.savefig(path, metadata=_UNDATED[path.suffix])


class FigureWriter:
    """Writes figures while the caller goes on computing: half of the time for a large report is drawing.

    Few figures are written at once. Many wait in a queue, from which one other process takes them; at the end of the
    `with` block, this process takes some too. The other process is spawned, so a script that writes a report must guard
    its main part by ``if __name__ == "__main__"``.

    Args:
        num_figures: about how many will be written; :data:`FEW` or more are worth a process.
    """

    def __init__(self, num_figures: int) -> None:
        self._apart = num_figures >= FEW
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def __enter__(self) -> FigureWriter:
        if self._apart:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"))
            self._feeder = ThreadPoolExecutor(1)
            self._fed = self._feeder.submit(self._feed)
        return self

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a function of a module that writes files, now or later.

        Raises:
            AnalysisError: the other process has died.
            Exception: what the function raised, or one that was called before.
        """
        if not self._apart:
            function(*arguments)
            return
        if self._fed.done():
            self._fed.result()
        self._jobs.put((function, arguments))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._apart:
            return
        try:
            for function, arguments in self._take_rest():
                if kind is None:
                    function(*arguments)
        finally:
            for _ in self._take_rest():
                pass
            self._jobs.put(None)
            self._feeder.shutdown()
            self._pool.shutdown()
        if kind is None:
            self._fed.result()

    def _feed(self) -> None:
        """Give the other process one job at a time, so that this one can still take the others; ends at None."""
        while (job := self._jobs.get()) is not None:
            try:
                self._pool.submit(job[0], *job[1]).result()
            except BrokenProcessPool as error:
                raise AnalysisError(f"the report's figures could not be drawn: {error}") from error

    def _take_rest(self) -> Iterator[_Job]:
        while True:
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return
            if job is not None:
                yield job
