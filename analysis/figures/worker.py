"""Figures drawn in a process of their own, beside the reading and reckoning: half of a large report is drawing."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from analysis.errors import AnalysisError

FEW = 12
"""So many figures are drawn sooner than another process has started."""


class Drawing:
    """Draws what it is given, here or in one process beside this one, which at the end of the `with` block both do.

    Not a pool of `multiprocessing`, which would run the caller's own script once more in its child.

    Args:
        num_figures: about how many will be drawn; :data:`FEW` or more are worth a process.
    """

    def __init__(self, num_figures: int) -> None:
        self._beside = num_figures >= FEW
        self._waiting: list[Path] = []

    def __enter__(self) -> Drawing:
        if self._beside:
            self._jobs = tempfile.TemporaryDirectory(prefix="goal-sweep-drawing-")
            self._said = Path(self._jobs.name, "said").open("w+b")
            self._process = subprocess.Popen(
                [sys.executable, "-m", "analysis.figures.worker"],
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        return self

    def draw(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function of a module, which writes files, now or later."""
        if not self._beside:
            function(*arguments)
            return
        job = Path(self._jobs.name, f"{len(self._waiting)}.pickle")
        job.write_bytes(pickle.dumps((function, arguments)))
        self._waiting.append(job)
        self._tell(f"{job}\n".encode())

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has failed; why is said at the end

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._beside:
            return
        if kind is None:
            for job in reversed(self._waiting):
                _perform(job)
        else:
            self._process.kill()
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        status = self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip()
        self._said.close()
        self._jobs.cleanup()
        if kind is None and status:
            raise AnalysisError(f"the report's figures could not be drawn: {said.splitlines()[-1] if said else status}")


def _perform(job: Path) -> None:
    """Make a pickled call, which our own process wrote, unless the other one has taken it."""
    taken = job.with_suffix(".taken")
    try:
        job.rename(taken)
    except FileNotFoundError:
        return
    function, arguments = pickle.loads(taken.read_bytes())
    function(*arguments)


def _serve() -> None:
    """Make the calls that standard input names, a file in each line."""
    for line in sys.stdin:
        _perform(Path(line.rstrip("\n")))


if __name__ == "__main__":
    _serve()
