"""The folder of a report and the list of its files, so that an old report is replaced and nothing else is touched."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from analysis.errors import AnalysisError

NAME = "report.json"


class ReportFolder:
    """Collects the files of one report as they are written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._before = read_manifest(folder) if (folder / NAME).is_file() else ()

    def path(self, name: str) -> Path:
        """Where to write the file ``name`` (relative, with forward slashes); its folder is made."""
        self._names.append(name)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, name: str, text: str) -> None:
        """Write a text file in UTF-8, with the same line ends on every system."""
        self.path(name).write_text(text, encoding="utf-8", newline="\n")

    def finish(self) -> tuple[Path, ...]:
        """Remove files of the earlier report that this one does not have, write the list, return all files."""
        for name in set(self._before) - set(self._names):
            (self.folder / name).unlink(missing_ok=True)
        names = [*self._names, NAME]
        (self.folder / NAME).write_text(json.dumps({"files": names}, indent=2) + "\n", encoding="utf-8")
        return tuple(self.folder / name for name in names)


def read_manifest(folder: Path) -> tuple[str, ...]:
    """The files of the report in ``folder``, relative to it, the list itself included.

    Raises:
        AnalysisError: there is no report, or its list is damaged or names a file outside of the folder.
    """
    path = folder / NAME
    if not path.is_file():
        raise AnalysisError(f"no report in {folder}: {NAME} is missing")
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["files"]
        escapes = [n for n in names if PurePosixPath(n).is_absolute() or ".." in PurePosixPath(n).parts]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise AnalysisError(f"{path} is not the list of a report's files") from error
    if escapes:
        raise AnalysisError(f"{path} names files outside of its folder: {', '.join(escapes)}")
    return tuple(names)
