"""Drawing beside the report: everything is drawn once, and what goes wrong there goes wrong here."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.figures.worker import FEW, Drawing


@pytest.mark.parametrize("number", [3, FEW + 20])
def test_everything_is_drawn_once(tmp_path: Path, number: int) -> None:
    with Drawing(number) as drawing:
        for index in range(number):
            # mkdir refuses a folder that is there, so drawing anything twice would fail.
            drawing.draw(Path.mkdir, tmp_path / str(index))
    assert len(list(tmp_path.iterdir())) == number


@pytest.mark.parametrize("number", [1, FEW])
def test_what_cannot_be_drawn_is_said(tmp_path: Path, number: int) -> None:
    with pytest.raises((AnalysisError, FileNotFoundError), match="nowhere"), Drawing(number) as drawing:
        drawing.draw(Path.mkdir, tmp_path / "nowhere" / "file")


def test_an_error_of_the_report_ends_the_drawing(tmp_path: Path) -> None:
    drawing = Drawing(FEW)
    with pytest.raises(KeyError), drawing:
        raise KeyError
    assert drawing._process.returncode is not None
