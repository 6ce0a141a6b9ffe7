"""Random faults in real launches: whatever is killed, frozen or cut off, a sweep ends with the unbroken run's numbers.

Run it as ``python -m tests.helpers.chaos --minutes 30 --seed 1`` (`make chaos`). The seed is printed, so that a run can
be repeated; which instruction a kill hits still differs from run to run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.helpers.launches import (
    attempts,
    check_mlflow,
    command,
    goal_sweep,
    records_of,
    results,
    sweep_in,
    tampered_trainer,
)
from tests.helpers.paths import ROOT

EPOCHS = 60
PACE = 0.03
"""Seconds that are added to each step, so that faults meet a training and not only the start of one."""
PROCESSES = {
    "worker": "ray::Implicit", "raylet": "raylet/raylet", "gcs": "gcs_server", "launch": "goal_sweep.runners",
    "dashboard agent": "ray::DashboardAgent", "environment agent": "ray::RuntimeEnvAgent",
}  # fmt: skip
"""Processes that are killed, and what their command lines contain. The supervisor has started them all."""
FAULTS = ("supervisor", *["worker"] * 9, *PROCESSES, *["pause"] * 2, "terminate", "rival", "tracking")
"""What may happen; what stands here twice is twice as likely."""
AGAIN = {75, 130, -9, -15, 137, 143}
"""Exit statuses after which the same command continues."""
POISONED = "con/con"
"""The objective of the cell that is made to die or to hang."""
COMMANDS = {
    "gc": ("gc", "tiny.yaml", "--delete"),
    "status": ("status", "tiny.yaml", "--json"),
    "report": ("report", "tiny.yaml"),
    "sync": ("sync", "tiny.yaml"),
    "check": ("data", "check", "tiny.yaml", "--store", "--quick", "--set-aside"),
    "export": ("export", "tiny.yaml", "results.tar.gz"),
    "import": ("import", "results.tar.gz", "--store", "elsewhere"),
}
"""What may come between two launches. None of them takes away what is finished, whenever it is killed."""
_REFUSAL = "already being done by"
ENDS = {"dies": "os.kill(os.getpid(), 9)", "hangs": "time.sleep(600)"}


@dataclass
class Log:
    """What happened so far."""

    random: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return sum(self.counts[name] for name in ("supervisor", *PROCESSES))


class Driver:
    """A launch in its own process, started again until the sweep is done."""

    def __init__(self, folder: Path, number: int, *arguments: str, environment: Mapping[str, str]) -> None:
        self._log = (folder / f"driver-{number}.log").open("wb")
        launch = command("launch", "tiny.yaml", *arguments)
        self.process = subprocess.Popen(
            launch, cwd=folder, env=environment, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )

    def children(self, name: str) -> list[psutil.Process]:
        """Its living children of a kind."""
        with contextlib.suppress(psutil.Error):
            everyone = psutil.Process(self.process.pid).children(recursive=True)
            return [one for one in everyone if PROCESSES[name] in _command_line(one)]
        return []

    def end(self, with_signal: signal.Signals) -> None:
        """End the driver; what it started is cleaned up, as after a crash of the machine's login session."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(with_signal)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.clean()

    def clean(self) -> None:
        """End what is left of the driver's processes."""
        self._log.close()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid:
                    process.kill()


def _command_line(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def run_through(folder: Path, log: Log, *, most: int, until: float = math.inf) -> None:
    """Launch a sweep with faults until it is done.

    Args:
        folder: holds ``tiny.yaml``.
        log: counts the faults.
        most: number of faults after which the sweep is left alone.
        until: time (`time.monotonic`) after which it is left alone.
    """
    number, faults, failed = 0, 0, False

    def more() -> bool:
        return faults < most and time.monotonic() < until

    while True:
        number += 1
        arguments = ["--retry-failed"] if failed else []
        if more() and not failed and log.random.random() < 0.1:
            arguments += ["--force"]
            log.counts["forced"] += 1
        untracked = log.random.random() < 0.1
        if untracked:
            arguments += ["--tracking-uri", "http://127.0.0.1:9"]
            log.counts["tracking down"] += 1
        act = f"time.sleep({PACE})"
        poisoned = more() and log.random.random() < 0.2
        if poisoned:
            end = log.random.choice(list(ENDS))
            condition = f"objective == {POISONED!r} and epoch >= {log.random.randrange(1, 12)}"
            act += f"; ({ENDS[end]} if {condition} else None)"
            arguments += ["--set", "resources.watchdog=10"]
            log.counts[f"a cell {end}"] += 1
        environment = tampered_trainer(folder / f"trainer-{number}", act)
        driver = Driver(folder, number, *arguments, environment=environment)
        fault = log.random.choice(FAULTS)
        happened = True
        while driver.process.poll() is None:
            # A fault that cannot happen yet, such as the death of a worker while Ray starts, is tried again soon.
            time.sleep(log.random.uniform(0.3, 4.0) if happened else 0.1)
            if more() and driver.process.poll() is None:
                happened = _FAULTS[fault](folder, driver, log.random)
                log.counts[fault] += happened
                faults += happened
                fault = log.random.choice(FAULTS) if happened else fault
        driver.clean()
        status = driver.process.returncode
        log.counts[f"exit {status}"] += 1
        compare_charges(folder)
        failed = status == 1 and poisoned
        if more():
            run_between(folder, log)
        if status == 0 and not untracked:
            return
        said = (folder / f"driver-{number}.log").read_text()
        # A rival that was quicker than a starting driver does the sweep in its place.
        overtaken = status == 2 and _REFUSAL in said
        if status not in AGAIN | {0} and not (failed or overtaken):
            sys.exit(f"a launch ended with {status}:\n{said[-3000:]}")


def run_between(folder: Path, log: Log) -> None:
    """Run another command, and perhaps kill it; what was finished stays, with its numbers."""
    name = log.random.choice(list(COMMANDS))
    before, kills = results(folder), log.random.random() < 0.4
    if name == "import" and not (folder / "results.tar.gz").exists():
        return
    process = subprocess.Popen(
        command(*COMMANDS[name]), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=log.random.uniform(1.0, 8.0) if kills else 300)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    log.counts[f"{name} {'killed' if process.returncode < 0 else process.returncode}"] += 1
    after = results(folder)
    # Without results there is nothing to report or to export, and that is said; all else has worked.
    is_right = process.returncode in (0, -signal.SIGKILL) or (process.returncode == 2 and not before)
    if not is_right or "Traceback" in said or {key: after.get(key) for key in before} != before:
        sys.exit(f"{name} ended with {process.returncode}; {len(before)} results before, {len(after)} after:\n{said}")


def _kill(kind: str) -> Callable[[Path, Driver, random.Random], bool]:
    def kill(folder: Path, driver: Driver, chance: random.Random) -> bool:
        found = driver.children(kind)
        if found:
            with contextlib.suppress(psutil.Error):
                chance.choice(found).kill()
                return True
        return False

    return kill


def _end(with_signal: signal.Signals) -> Callable[[Path, Driver, random.Random], bool]:
    def end(folder: Path, driver: Driver, chance: random.Random) -> bool:
        driver.end(with_signal)
        return True

    return end


def _pause(folder: Path, driver: Driver, chance: random.Random) -> bool:
    """Freeze a worker for a while."""
    found = driver.children("worker")
    if not found:
        return False
    with contextlib.suppress(psutil.Error):
        process = chance.choice(found)
        process.suspend()
        time.sleep(chance.uniform(0.5, 8.0))
        process.resume()
        return True
    return False


def _rival(folder: Path, driver: Driver, chance: random.Random) -> bool:
    """Launch the same sweep a second time; it must be refused, or find everything done."""
    second = goal_sweep(folder, "launch", "tiny.yaml")
    refused = second.returncode == 2 and _REFUSAL in second.stderr
    if refused or second.returncode == 0:
        return True
    sys.exit(f"a second launch ended with {second.returncode}:\n{second.stdout[-1500:]}{second.stderr[-1500:]}")


def _database(folder: Path, driver: Driver, chance: random.Random) -> bool:
    """Lock the tracking database for a while: nobody reads or writes it."""
    database = folder / "goal-sweep-store" / "mlflow.db"
    if not database.exists():
        return False
    with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(database, timeout=1.0) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(chance.uniform(0.2, 6.0))
        return True
    return False


_FAULTS: dict[str, Callable[[Path, Driver, random.Random], bool]] = {
    "supervisor": _end(signal.SIGKILL),
    "terminate": _end(signal.SIGTERM),
    **{kind: _kill(kind) for kind in PROCESSES},
    "pause": _pause,
    "rival": _rival,
    "tracking": _database,
}


def main() -> None:
    """Run rounds of faults for a while, compare each with the unbroken run, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=27.0, help="when to stop killing; what runs then ends by itself"
    )
    parser.add_argument("--kills", type=int, default=60, help="stop after this many killed processes")
    parser.add_argument("--sequences", type=int, default=20, help="sequences of commands and faults without Ray, first")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    sequences(given.seed, given.sequences)
    log, deadline = Log(random.Random(given.seed)), time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory(prefix="goal-sweep-chaos-") as scratch:
        whole = sweep_in(Path(scratch) / "unbroken", EPOCHS)
        done = goal_sweep(whole, "launch", "tiny.yaml")
        if done.returncode:
            sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
        number = 0
        while log.kills < given.kills and time.monotonic() < deadline:
            number += 1
            folder = sweep_in(Path(scratch) / f"round-{number}", EPOCHS)
            run_through(folder, log, most=20, until=deadline)
            compare(folder, whole, EPOCHS)
            print(f"round {number}: equal to the unbroken run; so far {dict(sorted(log.counts.items()))}", flush=True)
    print(f"{log.kills} kills in {number} rounds, every one ended equal")


def sequences(seed: int, number: int) -> None:
    """Try sequences of commands and faults in processes without Ray; Hypothesis shortens one that goes wrong."""
    words = ["-m", "pytest", "-q", "-m", "exhaustive", "tests/runners/store/test_sequences.py"]
    environment = os.environ | {"SEQUENCES": str(number), "OMP_NUM_THREADS": "1"}
    tried = subprocess.run(
        [sys.executable, *words, f"--hypothesis-seed={seed}"], cwd=ROOT, env=environment, check=False
    )
    if tried.returncode:
        sys.exit(f"a sequence went wrong with seed {seed}")


def compare(folder: Path, unbroken: Path, epochs: int) -> None:
    """Compare a finished sweep with the unbroken one: results, histories and MLflow."""
    if (results(folder), records_of(folder)) != (results(unbroken), records_of(unbroken)):
        sys.exit(f"{folder} ended with other numbers")
    check_mlflow(folder, epochs)


def compare_charges(folder: Path) -> None:
    """Check that no healthy cell was failed, or charged for what a neighbour in its process may have done.

    A cell that is alone in its process and is killed before it saves a state looks like one that kills its process. It
    is charged, and three such deaths in a row would fail it.
    """
    cells = folder / "goal-sweep-store" / "cells"
    for stage in ("frozen", "finetune"):
        for cell, records in attempts(folder, stage).items():
            if json.loads((cells / cell / "cell.json").read_text())["label"].startswith(POISONED):
                continue
            charged = [one for one in records if one["charged"]]
            if len(charged) > 2 or any(one["shared_by"] > 1 for one in charged):
                sys.exit(f"a healthy cell was charged: {charged[-1]}")


if __name__ == "__main__":
    main()
