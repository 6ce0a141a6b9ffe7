"""The folder of a report: written again, by two at once, after a kill, and never over a person's own files."""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from goal_sweep.analysis.report.folder import files_of_report, publish
from goal_sweep.goal_core.basics import atomic
from goal_sweep.sweeps.results import ResultsError
from tests.helpers.blank_figures import write_texts
from tests.helpers.results_cases import SweepWriter

PAGE = {"report.html": "<title>s - goal-sweep report</title>"}
OLD = {"cells.csv": "old", "tables/old.tex": "old", **PAGE}
NEW = {"cells.csv": "new", "tables/new.tex": "new", **PAGE}
OTHER = {"cells.csv": "other", "tables/other.tex": "other", **PAGE}
POINTS = range(20)
"""The operations on files of one of these reports, and some more."""


def write(folder: Path, texts: Mapping[str, str]) -> None:
    made = folder.with_name("made-" + texts["cells.csv"])
    for name, text in texts.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text(text)
    folder.mkdir(exist_ok=True)
    publish(made, folder)


def content(folder: Path) -> dict[str, str]:
    """Of all files but the list, and what a kill leaves of a write."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("[!.]*") if path.is_file()}
    return {name: path.read_text("latin-1") for name, path in files.items() if name != "report.json"}


def folders(parent: Path) -> Iterator[tuple[int, Path]]:
    """New and old ones for each operation at which something else may happen."""
    for number in POINTS:
        yield number, parent / f"fresh{number}"
        write(parent / f"again{number}", OLD)
        yield number, parent / f"again{number}"


@contextmanager
def before_operation(number: int, act: Callable[[], object]) -> Iterator[None]:
    """Act once, before an operation on a file."""
    left = [act] + [lambda: None] * number
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(atomic, "before_operation", lambda *_: left.pop()() if left else None)
        yield


def test_writing_again_replaces_the_old_report_and_nothing_else(tmp_path: Path) -> None:
    writer = SweepWriter(seeds=[1, 2], objectives=["con/con", "sig-ms/cir"])
    writer.write_all()
    write(tmp_path / "report", OLD)
    (tmp_path / "report" / "mine.txt").write_text("keep")
    write_texts(writer.results(), tmp_path / "report")
    before = content(tmp_path / "report")
    write_texts(writer.results(), tmp_path / "report")
    assert content(tmp_path / "report") == before
    assert {*before, "report.json"} == {*files_of_report(tmp_path / "report"), "mine.txt"}


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"files": ["../cells.csv"]}', '{"files": ["/etc/passwd"]}', None])
def test_a_report_without_its_list_is_written_again(tmp_path: Path, damaged: str | None) -> None:
    (tmp_path / "cells.csv").write_text("my own")
    folder = tmp_path / "report"
    write(folder, OLD)
    (folder / "report.json").unlink()
    if damaged is not None:
        (folder / "report.json").write_text(damaged)
    with pytest.raises(ResultsError, match=r"report\.json"):
        files_of_report(folder)
    write(folder, NEW)
    assert content(folder).items() >= NEW.items()
    assert (tmp_path / "cells.csv").read_text() == "my own"


def test_a_report_that_is_killed_is_completed_by_the_next(tmp_path: Path) -> None:
    for number, folder in folders(tmp_path):
        with before_operation(number, Mock(side_effect=SystemExit)), suppress(SystemExit):
            write(folder, OTHER)
        write(folder, NEW)
        assert content(folder) == NEW


def test_two_reports_at_once_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, folder in folders(tmp_path):
        with ThreadPoolExecutor(1) as pool, before_operation(number, partial(pool.submit, write, folder, OTHER)):
            write(folder, NEW)
        assert content(folder) in (NEW, OTHER)  # there may be no such operation
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError))  # a file system where none can wait
    for number, folder in folders(tmp_path):
        with before_operation(number, partial(write, folder, OTHER)):
            write(folder, NEW)
        write(folder, NEW)
        assert content(folder).items() >= NEW.items()


@pytest.mark.parametrize("own", ["cells.csv", "report.html", "report.json", "tables/new.tex"])
def test_a_file_that_no_report_has_written_stays(tmp_path: Path, own: str) -> None:
    path = tmp_path / "mine" / own
    path.parent.mkdir(parents=True)
    path.write_text("my own")
    with pytest.raises(ResultsError, match=f"{own} was not written by a report, so it is not replaced"):
        write(tmp_path / "mine", NEW)
    assert [file.read_text() for file in (tmp_path / "mine").rglob("*") if file.is_file()] == ["my own"]
