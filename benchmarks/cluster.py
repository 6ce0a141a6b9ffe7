"""What the driver of a launch takes while a large cluster trains: CPU, memory, and its longest pause.

    python -m benchmarks.cluster [--units 1000] [--seconds 120] [--epoch 60] [--points 600]

The launcher, the watch over its units, the store and MLflow on SQLite are the real ones. Units of 15 trainings all run
from the start. Ray and the workers are simulated: each unit reports an epoch every ``--epoch`` seconds, and a sign of
life four times within its watchdog's time. Each file operation of the driver takes another millisecond. What MLflow
shows of each training has ``--points`` values. No torch is loaded, as in a driver of a cluster.
"""

from __future__ import annotations

import argparse
import heapq
import io
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from goal_sweep.goal_core.basics import atomic
from goal_sweep.goal_core.basics.sealed_json import json_bytes
from goal_sweep.goal_core.training import EpochDone
from goal_sweep.runners.execution.capacity import Machine, Resources
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_watch import UnitWatch
from goal_sweep.runners.launch import launcher
from goal_sweep.runners.launch.launch import launch_sweep
from goal_sweep.runners.launch.opened_sweep import OpenedSweep, open_sweep
from goal_sweep.runners.launch.remaining.plan import LaunchOptions

EPOCHS = 30
_TICK_S = 0.1


class _Over(BaseException):
    """Ends the launch after the time that is measured."""


class _Cluster:
    """Stands for Ray, with room for all units at once."""

    grows = False

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given

    def __call__(self, *arguments: object, **options: object) -> _Cluster:
        return self

    def __enter__(self) -> _Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        return

    def machines(self) -> list[Machine]:
        """One that fits all."""
        room = {"CPU": 1e6, "GPU": 1e6}
        return [Machine(id="cluster", host="there", address="", resources=room)]

    def run(self, jobs: Sequence[UnitJob], observer: Any) -> None:
        """Let the units run for a while, and print what the driver took."""
        watch = UnitWatch(jobs, observer, Resources(gpus=0, cpus=1), self.machines)
        units: dict[int, list[str]] = {}
        while (taken := watch.take(len(jobs))) is not None:
            units[taken["unit"]] = [training.key for training in taken["job"].unit.trainings]
            watch.started(taken["unit"])
        metrics = {f"train/m{number}": 1.0 for number in range(self._given.points // EPOCHS - 1)} | {"val/rsum": 10.0}
        lines = [
            json_bytes({"epoch": epoch, "time": 1.7e9 + epoch, "metrics": metrics}, indent=None)
            for epoch in range(1, EPOCHS + 1)
        ]
        for job in jobs:
            for training in job.unit.trainings:  # what its worker writes
                folder = Path(job.store, "cells", training.cell.id, f"{training.stage.name}-{training.key}")
                (folder / "attempts").mkdir(parents=True)
                attempt = {"n": 1, "launch_id": job.launch_id, "host": "there", "pid": 1, "started": 1.7e9}
                (folder / "attempts/1.json").write_bytes(json_bytes(attempt))
                (folder / "metrics.1.jsonl").write_bytes(b"".join(lines))
        print(f"{len(jobs):,} units of {len(jobs[0].unit.trainings)}", flush=True)
        began, cpu, longest = time.monotonic(), time.process_time(), (0.0, 0.0)
        order, period, sign = count(), self._given.epoch, jobs[0].watchdog / 4
        due = [(number * period / len(units), next(order), unit, 1) for number, unit in enumerate(units)]
        due += [(number * sign / len(units), next(order), unit, 0) for number, unit in enumerate(units)]
        heapq.heapify(due)
        while (now := time.monotonic() - began) < self._given.seconds:
            while due and due[0][0] <= now:
                at, _, unit, epoch = heapq.heappop(due)
                record: Any = {"epoch": epoch, "time": 1.7e9 + epoch, "metrics": metrics}
                events = [EpochDone(key=key, record=record) for key in units[unit] if epoch]
                longest = max(longest, _seconds(partial(watch.reported, unit, {"events": events})))
                heapq.heappush(due, (at + (period if epoch else sign), next(order), unit, epoch and epoch + 1))
            longest = max(longest, _seconds(observer.step), _seconds(watch.step))
            time.sleep(_TICK_S)
        passed = time.monotonic() - began
        share = 100 * (time.process_time() - cpu) / passed
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{share:.1f} % of a core in {passed:.0f} s, peak {memory:.0f} MiB")
        print(f"longest pause {longest[0]:.2f} s, of which {longest[1]:.2f} s of CPU")
        raise _Over


def _slowly(operation: str, path: Path) -> None:
    time.sleep(0.001)


def _seconds(act: Callable[[], object]) -> tuple[float, float]:
    """How long a call takes, and the CPU seconds of its thread: on a busy machine it also waits for others."""
    began, cpu = time.monotonic(), time.thread_time()
    act()
    return time.monotonic() - began, time.thread_time() - cpu


def main() -> None:
    """Launch a sweep and measure its driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("units", 1000), ("seconds", 120), ("epoch", 60), ("points", 600)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        settings = [f"store={folder}/store", f"seeds={list(range(given.units))}"]
        settings += ["execution.cells_per_unit=15", f"stages=[{{name: frozen, epochs: {EPOCHS}, lr: 0.1}}]"]
        sweep = open_sweep("quickstart", settings)
        delay = mock.patch.object(atomic, "before_operation", _slowly)
        ray = mock.patch.object(launcher, "RayUnits", _Cluster(given))
        with ray, delay, mock.patch.object(OpenedSweep, "check_trainable"):
            try:
                launch_sweep(sweep, LaunchOptions(), Console(file=io.StringIO()), lambda *words, **named: "")
            except _Over:
                print("torch is loaded" if "torch" in sys.modules else "without torch")


if __name__ == "__main__":
    main()
