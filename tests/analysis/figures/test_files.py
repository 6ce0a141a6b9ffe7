"""Figures written in other processes: each is written once, and what goes wrong there is said here."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from analysis.errors import AnalysisError
from analysis.figures.files import MIN_FIGURES_FOR_PROCESS, written

Many = list[tuple[list[Path], Callable[..., Figure], tuple[Any, ...]]]


def one_text(text: str) -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.text(0.5, 0.5, text)
    return figure


def many(folder: Path, number: int) -> Many:
    return [([folder / f"{index}.png"], one_text, (str(index),)) for index in range(number)]


@pytest.mark.parametrize("number", [3, MIN_FIGURES_FOR_PROCESS + 4])
def test_all_are_written(tmp_path: Path, number: int) -> None:
    with written(many(tmp_path, number)):
        pass
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == number


@pytest.mark.parametrize("number", [1, MIN_FIGURES_FOR_PROCESS])
def test_what_cannot_be_written_is_said(tmp_path: Path, number: int) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"), written(many(tmp_path / "nowhere", number)):
        pass


def test_an_error_of_the_report_ends_the_other_processes(tmp_path: Path) -> None:
    with pytest.raises(KeyError), written(many(tmp_path, MIN_FIGURES_FOR_PROCESS)):
        raise KeyError
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(120)
def test_the_death_of_another_process_is_an_error_and_nothing_waits_for_it(tmp_path: Path) -> None:
    with (
        pytest.raises(AnalysisError, match="figures could not be drawn"),
        written(many(tmp_path, 40 * MIN_FIGURES_FOR_PROCESS)),
    ):
        os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)
    assert multiprocessing.active_children() == []
