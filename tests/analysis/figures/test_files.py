"""Figures written in another process: each is written once, and what goes wrong there is said here."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.figures.files import MIN_FIGURES_FOR_PROCESS, FigureWriter


@pytest.mark.parametrize("number", [3, MIN_FIGURES_FOR_PROCESS + 20])
def test_everything_is_written_once(tmp_path: Path, number: int) -> None:
    with FigureWriter(number) as figures:
        for index in range(number):
            # mkdir refuses a folder that is there, so writing anything twice would fail.
            figures.submit(Path.mkdir, tmp_path / str(index))
    assert len(list(tmp_path.iterdir())) == number


@pytest.mark.parametrize("number", [1, MIN_FIGURES_FOR_PROCESS])
def test_what_cannot_be_written_is_said(tmp_path: Path, number: int) -> None:
    with pytest.raises((AnalysisError, FileNotFoundError), match="nowhere"), FigureWriter(number) as figures:
        figures.submit(Path.mkdir, tmp_path / "nowhere" / "file")


def test_an_error_of_the_report_ends_the_other_process() -> None:
    def fail() -> None:
        with FigureWriter(MIN_FIGURES_FOR_PROCESS) as figures:
            figures.submit(os.getpid)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert multiprocessing.active_children() == []


@pytest.mark.timeout(60)
def test_the_death_of_the_other_process_is_an_error_and_nothing_waits_for_it(tmp_path: Path) -> None:
    def kill_and_go_on() -> None:
        with FigureWriter(MIN_FIGURES_FOR_PROCESS) as figures:
            figures.submit(time.sleep, 60)
            while not (children := multiprocessing.active_children()):
                time.sleep(0.01)
            os.kill(children[0].pid or 0, signal.SIGKILL)
            for index in range(MIN_FIGURES_FOR_PROCESS):
                figures.submit(Path.mkdir, tmp_path / str(index))

    with pytest.raises(AnalysisError, match="figures could not be drawn"):
        kill_and_go_on()
    assert multiprocessing.active_children() == []
