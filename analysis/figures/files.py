"""Writes figures to files: the same numbers give the same bytes, and many figures are drawn in separate processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.figures.fonts import families, make_drawable, pdf_font_type, texts_of

MIN_FIGURES_FOR_PROCESS = 12
"""Draw in separate processes when there are at least this many figures."""
_PROCESSES = 2
_UNDATED: dict[str, dict[str, str | None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any) -> None:
    """Draw a figure and save it; fonts of this machine fill in for scripts that matplotlib's own font lacks.

    Args:
        paths: the files to write, ``.png``, ``.pdf`` or ``.svg``; their folders must exist.
        draw: a function that returns the figure.
        arguments: the arguments of ``draw``.
    """
    figure = draw(*arguments)
    fonts = families(texts_of(figure))
    settings = {"svg.hashsalt": "goal-sweep", "font.family": fonts, "pdf.fonttype": pdf_font_type(fonts)}
    with rc_context(settings):
        if len(fonts) > 1:  # drawn again, because a text keeps the fonts that it was made with
            figure = draw(*arguments)
        make_drawable(figure)
        for path in paths:
            figure.savefig(path, metadata=_UNDATED[path.suffix])


class FigureWriter:
    """Writes figures, many of them in other processes while the caller continues: drawing dominates a large report.

    The `with` block ends when all figures are written. The other processes are spawned, so a script that writes a
    report must guard its main part by ``if __name__ == "__main__"``.

    Args:
        num_figures: roughly how many will be written; with fewer than :data:`MIN_FIGURES_FOR_PROCESS`, the caller's own
            process draws them.
    """

    def __init__(self, num_figures: int) -> None:
        is_many = num_figures >= MIN_FIGURES_FOR_PROCESS
        self._pool = ProcessPoolExecutor(_PROCESSES, get_context("spawn")) if is_many else None
        self._figures: list[Future[object]] = []

    def __enter__(self) -> FigureWriter:
        if self._pool is not None:
            # The pool starts a process for each of its first jobs. A process that it starts while another dies would
            # never end, so all are started before any figure is drawn.
            self._figures = [self._pool.submit(int) for _ in range(_PROCESSES)]
        return self

    def submit(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a module's function that writes files, now or later.

        Raises:
            AnalysisError: another process has died.
            Exception: any error of the function, here or at the end of the `with` block.
        """
        if self._pool is None:
            function(*arguments)
            return
        try:
            self._figures.append(self._pool.submit(function, *arguments))
        except BrokenProcessPool as error:
            raise _died(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        try:
            if kind is None:
                for figure in self._figures:
                    figure.result()
        except BrokenProcessPool as broken:
            raise _died(broken) from broken
        finally:
            self._pool.shutdown(cancel_futures=True)


def _died(error: BrokenProcessPool) -> AnalysisError:
    return AnalysisError(f"the report's figures could not be drawn: {error}")
