"""Reports whose figures are blank: drawing them takes nine tenths of the time of a small report."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from goal_sweep.analysis.report.writing import ReportResult, write_report


@contextmanager
def blank_figures() -> Iterator[None]:
    """Make every figure as always, and save a white one of its size, for tests that do not look at it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Figure, "savefig", _save_blank)
        yield


def _save_blank(figure: Figure, path: Path, **options: Any) -> None:
    width, height = (round(length * figure.dpi) for length in figure.get_size_inches())
    if path.suffix == ".png":
        Image.new("1", (width, height), 1).save(path)
    else:
        path.write_text("a figure\n")


def write_texts(*arguments: Any, **options: Any) -> ReportResult:
    """Write a report with blank figures."""
    with blank_figures():
        return write_report(*arguments, **options)
