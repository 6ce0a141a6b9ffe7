"""The folder of a report, which records the names of its files so that a new report replaces exactly these."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from goal_sweep.sweeps.results import ResultsError

REPORT_LIST = "report.json"
"""The list of a report's files, in its folder."""


class ReportFolder:
    """Writes the files of a report."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._before = files_of_report(folder) if (folder / REPORT_LIST).is_file() else ()

    def path(self, name: str) -> Path:
        """Where to write a file (relative, with forward slashes); its folder is created.

        A `ResultsError` says that there is one which no report has written.
        """
        path = self.folder / name
        if path.exists() and name not in (*self._before, *self._names, REPORT_LIST):
            raise ResultsError(f"{path} is no file of a report, so it stays; give the report another folder")
        self._names.append(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._list([*self._before, *self._names])  # before it is written, so that another report may replace it
        return path

    def write(self, name: str, text: str) -> None:
        """Write a text file in UTF-8, with the same line endings on every system."""
        self.path(name).write_text(text, encoding="utf-8", newline="\n")

    def finish(self) -> tuple[Path, ...]:
        """Remove files of the earlier report that this one lacks, write the list of files, and return all files."""
        for name in set(self._before) - set(self._names):
            (self.folder / name).unlink(missing_ok=True)
        self._names.append(REPORT_LIST)
        self._list(self._names)
        return tuple(self.folder / name for name in self._names)

    def _list(self, names: Sequence[str]) -> None:
        text = json.dumps({"files": [*dict.fromkeys(names)]}, indent=2)
        (self.folder / REPORT_LIST).write_text(f"{text}\n", encoding="utf-8", newline="\n")


def files_of_report(folder: Path) -> tuple[str, ...]:
    """The files of the report in ``folder``, relative to it, including the list itself.

    Raises `ResultsError` where there is no report, or its list is damaged or names a file outside the folder.
    """
    path = folder / REPORT_LIST
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["files"]
        outside = [n for n in names if PurePosixPath(n).is_absolute() or ".." in PurePosixPath(n).parts]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ResultsError(f"{path} is not the list of a report's files: {error}") from error
    if outside:
        raise ResultsError(f"{path} names files outside its folder: {', '.join(outside)}")
    return tuple(names)
