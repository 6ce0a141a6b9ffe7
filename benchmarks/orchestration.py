"""What the driver of a launch costs for each event, as the number of trainings grows.

    python -m benchmarks.orchestration [--trainings 100 1000 10000] [--tracking]

The driver is the real one: the launcher with its view and the store, in memory, and with `--tracking` MLflow on SQLite.
Ray and the workers are simulated at the seam between them and the launcher (`UnitObserver`): each start, epoch and end
is there at once, and what the workers do to the store does not count. CPU time, so that other work does not matter.
The cost of an event must not grow with the number of trainings. Ray Tune's own part is not in it.
"""

from __future__ import annotations

import argparse
import io
import resource
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from rich.console import Console

from benchmarks.program import Report, Row, run
from goal_core.training import EpochDone, TrainingDone
from runners.execution.unit_job import UnitJob
from runners.launch import launch, launcher
from runners.launch.opened_sweep import open_sweep
from runners.launch.remaining.plan import LaunchOptions
from runners.store import Store
from tests.helpers.in_process import InProcess, NoTracking
from tests.helpers.store_cases import record, result, train

OPTIONS = {"trainings": (100, 1000, 10_000), "tracking": False}
EPOCHS = 3


class _Simulated(InProcess):
    """Stands for Ray and its workers, and times the driver."""

    stamps: ClassVar[list[float]] = []
    """The driver's CPU seconds at each event, without what is simulated."""
    simulated: ClassVar[float] = 0.0

    def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
        """Run the units one after the other."""
        left = deque(jobs)
        while left:
            job = left.popleft()
            (training,) = job.unit.trainings
            self._noted(observer.started, job)
            for epoch in range(1, EPOCHS + 1):
                self._noted(observer.events, [EpochDone(key=training.key, record=record(epoch))])
                self._noted(observer.step)
            began = time.process_time()
            files = Store(job.store).folder(training)
            files.claim(job.launch_id)
            train(files, EPOCHS)
            type(self).simulated += time.process_time() - began
            self._noted(observer.events, [TrainingDone(key=training.key, result=result(EPOCHS))])
            left.extend(self._noted(observer.finished, job))

    def _noted(self, call: Callable[..., Any], *arguments: object) -> Any:
        self.stamps.append(time.process_time() - self.simulated)
        return call(*arguments)


def measure(given: argparse.Namespace, report: Report) -> None:
    """Launch a sweep of each size."""
    tracking = "MLflow" if given.tracking else "no MLflow"
    for count in given.trainings:
        report.row(
            f"the driver of a launch, {tracking}", f"{count:,} trainings", partial(_launched, count, given.tracking)
        )


def _launched(trainings: int, tracking: bool) -> Row:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        settings = [f"store={folder}/store", f"seeds={list(range(-(-trainings // 15)))}", "data.num_train=60"]
        settings += ["execution.sharing=none", f"stages=[{{name: frozen, epochs: {EPOCHS}, lr: 0.1}}]"]
        sweep = open_sweep("scenes", settings)
        _Simulated.stamps, _Simulated.simulated = [], 0.0
        with ExitStack() as patches:
            patches.enter_context(mock.patch.object(launcher, "RayUnits", _Simulated))
            if not tracking:
                patches.enter_context(mock.patch.object(launch, "SweepTracking", NoTracking))
            console = Console(file=io.StringIO())
            outcome = launch.launch_sweep(sweep, LaunchOptions(), console, lambda *words, **named: " ".join(words))
        if outcome.status:
            raise RuntimeError(f"the launch ended with status {outcome.status}")
    stamps = _Simulated.stamps
    total, tenth = time.process_time() - _Simulated.simulated - stamps[0], len(stamps) // 10
    early, late = (1000 * (stamps[end] - stamps[end - tenth]) / tenth for end in (3 * tenth, 7 * tenth))
    return {
        "events": len(stamps), "ms an event, the end included": 1000 * total / len(stamps), "third tenth": early,
        "seventh tenth": late, "MiB, peak so far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(run(__doc__, OPTIONS, measure))
