"""The folder of a report, with a list of its files, so that a new report replaces these and no others.

Several reports may be written there at once, and killed at any time: each is made elsewhere and then copied, one at a
time. It names all its files in the list before the first of them takes its place.
"""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from goal_sweep.goal_core.basics.atomic import remove_leftovers, replace_bytes
from goal_sweep.sweeps.results import ResultsError

REPORT_LIST = "report.json"
"""The list of a report's files, in its folder."""
PAGE = "report.html"


def publish(made: Path, folder: Path) -> None:
    """Copy a new report into its folder, and remove files of the report before that it lacks.

    A folder with the list or the page of a report is one of reports: there a file with the name of a new one is of an
    earlier report, or of one that is written now. Elsewhere no file is replaced.

    Raises:
        ResultsError: a file is in the way that no report has written.
    """
    with _alone(folder):
        names = [path.relative_to(made).as_posix() for path in sorted(made.rglob("*")) if path.is_file()]
        taken = [folder / name for name in (*names, REPORT_LIST) if (folder / name).exists()]
        before: tuple[str, ...] = ()
        try:  # after the look for files: any other report writes its list before them
            before = files_of_report(folder)
        except ResultsError as error:
            page = folder / PAGE  # which is there also where the list is damaged
            has_page = page.is_file() and b"goal-sweep report</title>" in page.read_bytes()
            if taken and not has_page:
                why = f"{taken[0]} was not written by a report, so it is not replaced; give another folder"
                raise ResultsError(why) from error
        _write_list(folder, {*before, *names})
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            replace_bytes(folder / name, (made / name).read_bytes())
            remove_leftovers((folder / name).parent)
        for name in set(before) - {*names, REPORT_LIST}:
            (folder / name).unlink(missing_ok=True)
        _write_list(folder, names)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process copies a report into a folder, where the file system can tell.

    Where it cannot, two at once leave files of both, and the next report is whole again.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


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
    return tuple(name for name in names if (folder / name).is_file())  # a report that was killed has not written all


def _write_list(folder: Path, names: Iterable[str]) -> None:
    text = json.dumps({"files": sorted({*names, REPORT_LIST})}, indent=2)
    replace_bytes(folder / REPORT_LIST, f"{text}\n".encode())
