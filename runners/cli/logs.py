"""The logs of trainings and the traces of failed ones, for `goal-sweep logs`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from goal_core.errors import GoalError
from runners.launch.opened_sweep import OpenedSweep
from runners.store import LOG
from sweeps import Cell, Training

_POLL_SECONDS = 0.5


def show_logs(
    sweep: OpenedSweep, pattern: str | None, *, failed: bool, follow: bool, write: Callable[[str], None]
) -> None:
    """Print logs, stage by stage and cell by cell.

    Args:
        sweep: the sweep.
        pattern: beginning of a cell id, or part of a cell's name; None for all cells.
        failed: print only failed trainings, with the traces of their last attempts.
        follow: keep printing new lines until interrupted.
        write: receives each line.

    Raises:
        GoalError: no cell matches the pattern.
    """
    chosen = [one for one in sweep.trainings if pattern is None or _matches(one.cell, pattern)]
    if not chosen:
        raise GoalError(f"no cell of {sweep.config.name} has {pattern!r} in its id or name")
    if failed:
        statuses = sweep.statuses()
        chosen = [training for training in chosen if statuses[training].state == "failed"]
    paths: list[tuple[Training, Path]] = []
    for training in chosen:
        folder = sweep.store.folder(training)
        path = folder.path(LOG)
        paths.append((training, path))
        if path.exists():
            write(f"== {training.name}  {training.cell.id}")
            write(path.read_text(errors="replace").rstrip())
        if failed and (attempts := folder.attempts.all()):
            write(attempts[-1].trace)
    if follow:
        _follow(paths, write)
    elif not any(path.exists() for _, path in paths):
        write("no failed cell" if failed else "nothing has been logged yet")


def _matches(cell: Cell, pattern: str) -> bool:
    return cell.id.startswith(pattern) or pattern in cell.label


def _follow(paths: list[tuple[Training, Path]], write: Callable[[str], None]) -> None:
    sizes = {path: path.stat().st_size if path.exists() else 0 for _, path in paths}
    while True:
        time.sleep(_POLL_SECONDS)
        for training, path in paths:
            if path.exists() and path.stat().st_size > sizes[path]:
                with path.open("rb") as file:
                    file.seek(sizes[path])
                    added = file.read()
                sizes[path] += len(added)
                for line in added.decode(errors="replace").splitlines():
                    write(f"{training.name} | {line}")
