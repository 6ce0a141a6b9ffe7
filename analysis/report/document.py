"""The parts of a report (sections, figures, tables), and the folder of its files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from analysis.blocks import Block
from analysis.errors import AnalysisError
from analysis.report.tables import TextTable

REPORT_LIST = "report.json"
"""The list of a report's files, in its folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureLink:
    """A figure in the report's folder."""

    path: str
    """The PNG, relative to the report's folder, with forward slashes."""
    title: str
    """What it shows; used as its caption and alternative text."""
    note: str = ""
    """How to read it, in full sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTable:
    """One measure of a block, as a table and as a heatmap."""

    block: Block
    measure: str
    """``R@1``, ``R@5``, ``R@10`` or ``rsum``."""
    colour: str
    """The block's full colour."""
    heatmap: FigureLink


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report: warnings and paragraphs, then figures, then tables."""

    anchor: str
    """Its id in the page, unique in the report."""
    title: str
    num_missing: int = 0
    """The number of missing results, shown beside the title."""
    warnings: tuple[str, ...] = ()
    paragraphs: tuple[str, ...] = ()
    figures: tuple[FigureLink, ...] = ()
    tables: tuple[GridTable | TextTable, ...] = ()
    folded: bool = False
    """Whether a block's tables are collapsed in the page: those of the axes' other points."""


class ReportFolder:
    """The folder of a report, which records the names of its files so that a new report replaces exactly these."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._before = files_of_report(folder) if (folder / REPORT_LIST).is_file() else ()

    def path(self, name: str) -> Path:
        """Where to write the file ``name`` (relative, with forward slashes); its folder is created."""
        self._names.append(name)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str) -> None:
        """Write a text file in UTF-8, with the same line endings on every system."""
        self.path(name).write_text(text, encoding="utf-8", newline="\n")

    def finish(self) -> tuple[Path, ...]:
        """Remove files of the earlier report that this one lacks, write the list of files, and return all files."""
        for name in set(self._before) - set(self._names):
            (self.folder / name).unlink(missing_ok=True)
        names = [*self._names, REPORT_LIST]
        (self.folder / REPORT_LIST).write_text(json.dumps({"files": names}, indent=2) + "\n", encoding="utf-8")
        return tuple(self.folder / name for name in names)


def files_of_report(folder: Path) -> tuple[str, ...]:
    """The files of the report in ``folder``, relative to it, including the list itself.

    Raises:
        AnalysisError: there is no report, or its list is damaged or names a file outside the folder.
    """
    path = folder / REPORT_LIST
    if not path.is_file():
        raise AnalysisError(f"no report in {folder}: {REPORT_LIST} is missing")
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["files"]
        escapes = [n for n in names if PurePosixPath(n).is_absolute() or ".." in PurePosixPath(n).parts]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise AnalysisError(f"{path} is not the list of a report's files") from error
    if escapes:
        raise AnalysisError(f"{path} names files outside its folder: {', '.join(escapes)}")
    return tuple(names)
