"""Figures are written to files, and what goes wrong there is said."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from goal_sweep.analysis.figures.canvas import write_figure


def one_text(text: str) -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.text(0.5, 0.5, text)
    return figure


def test_a_figure_is_written_to_all_its_files(tmp_path: Path) -> None:
    paths = [tmp_path / "a.png", tmp_path / "a.pdf"]
    write_figure(paths, one_text, "x")
    assert [path.read_bytes()[:4] for path in paths] == [b"\x89PNG", b"%PDF"]
