"""Writes figures to files: the same numbers give the same bytes, and many figures are drawn in separate processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.figures.fonts import families, make_drawable, pdf_font_type, texts_of, usual_family

MIN_FIGURES_FOR_PROCESS = 12
"""Draw in separate processes when there are at least this many figures."""
_PROCESSES = 2
_UNDATED: dict[str, dict[str, str | None]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    ".svg": {"Date": None, "Creator": None},
}
_FASTER: Mapping[str, Any] = {".png": {"pil_kwargs": {"compress_level": 3}}}
"""Half the time of the usual level; the files are an eighth larger."""


def write_figure(paths: Sequence[Path], draw: Callable[..., Figure], *arguments: Any) -> None:
    """Draw a figure and save it; fonts of this machine fill in for scripts that matplotlib's own font lacks.

    Args:
        paths: the files to write, ``.png``, ``.pdf`` or ``.svg``; their folders must exist.
        draw: a function that returns the figure.
        arguments: the arguments of ``draw``.
    """
    with rc_context({"svg.hashsalt": "goal-sweep", "font.family": [usual_family()]}):
        figure = draw(*arguments)
        fonts = families(texts_of(figure))
        rcParams.update({"font.family": fonts, "pdf.fonttype": pdf_font_type(fonts)})
        if len(fonts) > 1:  # drawn again, because a text keeps the fonts that it was made with
            figure = draw(*arguments)
            make_drawable(figure)
        for path in paths:
            figure.savefig(path, metadata=_UNDATED[path.suffix], **_FASTER.get(path.suffix, {}))


@contextmanager
def written(figures: Sequence[tuple[Sequence[Path], Callable[..., Figure], tuple[Any, ...]]]) -> Iterator[None]:
    """Write figures; when the `with` block ends, all are written.

    Many are drawn in other processes while the block runs, because drawing dominates a large report. These processes
    are spawned, so a script that writes a report must guard its main part by ``if __name__ == "__main__"``.

    Args:
        figures: the arguments of `write_figure` for each; those that take longest come first.

    Raises:
        AnalysisError: another process has died.
    """
    if len(figures) < MIN_FIGURES_FOR_PROCESS:
        for paths, draw, arguments in figures:
            write_figure(paths, draw, *arguments)
        yield
        return
    pool = ProcessPoolExecutor(_PROCESSES, get_context("spawn"))
    try:
        # The pool starts a process for each of its first jobs. A process that it starts while another dies would never
        # end, so all are started before any figure is drawn.
        drawn: list[Future[Any]] = [pool.submit(int) for _ in range(_PROCESSES)]
        drawn += [pool.submit(write_figure, paths, draw, *arguments) for paths, draw, arguments in figures]
        yield
        for figure in drawn:
            figure.result()
    except BrokenProcessPool as error:
        raise AnalysisError(f"the report's figures could not be drawn: {error}") from error
    finally:
        pool.shutdown(cancel_futures=True)
