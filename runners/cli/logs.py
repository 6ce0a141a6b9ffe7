"""`goal-sweep logs`: what cells wrote while they trained, and why they failed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from goal_core.errors import GoalError
from runners.launch.opened_sweep import OpenedSweep
from runners.store.training_folder import LOG
from sweeps import Cell

_POLL_SECONDS = 0.5


def show_logs(
    study: OpenedSweep, pattern: str | None, *, failed: bool, follow: bool, write: Callable[[str], None]
) -> None:
    """Print logs, cell by cell and stage by stage.

    Args:
        study: the sweep.
        pattern: beginning of a cell id, or a part of a cell's name; None for all cells.
        failed: only failed stages, with the traces of their last attempts.
        follow: go on until interrupted.
        write: takes one line.

    Raises:
        GoalError: no cell matches.
    """
    cells = [cell for cell in study.cells if pattern is None or _matches(cell, pattern)]
    if not cells:
        raise GoalError(f"no cell of {study.config.name} has {pattern!r} in its id or name")
    statuses, paths = study.statuses(), []
    for cell, stage, ref in study.refs():
        if cell not in cells or (failed and statuses[ref].state != "failed"):
            continue
        folder = study.store.folder(ref)
        paths.append((f"{cell.name(cell.stages[stage].name)}  {cell.id}", folder.path(LOG)))
        _print_file(*paths[-1], write)
        if failed and (attempts := folder.attempts.all()):
            write(attempts[-1].trace)
    if follow:
        _follow(paths, write)
    elif not any(path.exists() for _, path in paths):
        write("no failed cell" if failed else "nothing has been logged yet")


def _matches(cell: Cell, pattern: str) -> bool:
    return cell.id.startswith(pattern) or pattern in cell.label


def _print_file(name: str, path: Path, write: Callable[[str], None]) -> None:
    if path.exists():
        write(f"== {name}")
        write(path.read_text(errors="replace").rstrip())


def _follow(paths: list[tuple[str, Path]], write: Callable[[str], None]) -> None:
    sizes = {path: path.stat().st_size if path.exists() else 0 for _, path in paths}
    while True:
        time.sleep(_POLL_SECONDS)
        for name, path in paths:
            if path.exists() and path.stat().st_size > sizes[path]:
                with path.open("rb") as file:
                    file.seek(sizes[path])
                    added = file.read()
                sizes[path] += len(added)
                for line in added.decode(errors="replace").splitlines():
                    write(f"{name.split('  ')[0]} | {line}")
