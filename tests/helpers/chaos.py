"""Random faults in real launches: whatever is killed, frozen or cut off, a sweep ends with the unbroken run's numbers.

Run it as ``python -m tests.helpers.chaos --minutes 30 --seed 1`` (`make chaos`). The seed is printed, so that a run can
be repeated; which instruction a kill hits still differs from run to run.
"""

import argparse
import contextlib
import json
import math
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.helpers import product
from tests.helpers.launches import (
    WORKER,
    Launch,
    check_mlflow,
    command,
    goal_sweep,
    records_of,
    results,
    sweep_in,
    tampered_trainer,
)

EPOCHS = 60
PACE = 0.03
"""Seconds that are added to each step, so that faults meet a training and not only the start of one."""
PROCESSES = {
    "worker": WORKER, "raylet": "raylet/raylet", "gcs": "gcs_server", "launch": "-P -m goal_sweep.runners.cli launch",
}  # fmt: skip
"""Processes of a launch that are killed, and what their command lines contain. Its parent has started them all."""
FAULTS = (*["worker"] * 9, *PROCESSES, "parent", "everything", *["pause"] * 2, "terminate", "rival", "tracking")
"""What may happen; what stands here twice is twice as likely."""
KILLS = (*PROCESSES, "parent", "everything")
AGAIN = {75, 130, -9, -15}
"""Exit statuses after which the same command continues."""
POISONED = "con/con"
"""The objective of the cell that is made to die or to hang."""
COMMANDS = {
    "gc": ("gc", "tiny.yaml", "--delete"),
    "status": ("status", "tiny.yaml", "--json"),
    "report": ("report", "tiny.yaml"),
    "sync": ("sync", "tiny.yaml"),
    "rewrite": ("sync", "tiny.yaml", "--rewrite"),
}
"""What may come between two launches. None of them takes away what is finished, whenever it is killed."""
ENDS = {"dies": "os.kill(os.getpid(), 9)", "hangs": "time.sleep(600)"}
Fault = Callable[[Launch, random.Random], bool]
"""Does something to a launch; whether it could."""


@dataclass
class Log:
    """What happened so far."""

    random: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    rivals: list[Launch] = field(default_factory=list)

    @property
    def kills(self) -> int:
        """Processes that were killed."""
        return sum(self.counts[name] for name in KILLS)


def run_through(folder: Path, log: Log, *, most: int, until: float = math.inf) -> None:
    """Launch ``tiny.yaml`` until it is done; after so many faults, or at a time, it is left alone."""
    number, faults, failed, ever_poisoned = 0, 0, False, False

    def more() -> bool:
        return faults < most and time.monotonic() < until

    while True:
        number += 1
        arguments, act = ["--retry-failed"] if failed else [], f"time.sleep({PACE})"
        if log.random.random() < 0.1:
            arguments += ["--tracking-uri", "http://127.0.0.1:9"]
            log.counts["tracking down"] += 1
        if more() and log.random.random() < 0.2:
            ever_poisoned = True
            end = log.random.choice(list(ENDS))
            condition = f"objective == {POISONED!r} and epoch >= {log.random.randrange(1, 12)}"
            act += f"; ({ENDS[end]} if {condition} else None)"
            arguments += ["--set", "resources.watchdog=10"]
            log.counts[f"a cell {end}"] += 1
        launch = Launch(folder, *arguments, environment=tampered_trainer(folder / f"trainer-{number}", act))
        fault, happened = log.random.choice(FAULTS), True
        while launch.process.poll() is None:
            # A fault that cannot happen yet, such as the death of a worker while Ray starts, is tried again soon.
            time.sleep(log.random.uniform(0.3, 4.0) if happened else 0.1)
            if more() and launch.process.poll() is None:
                happened = _rival(folder, log) if fault == "rival" else _FAULTS[fault](launch, log.random)
                log.counts[fault] += happened
                faults += happened
                fault = log.random.choice(FAULTS) if happened else fault
        launch.end()
        status = launch.process.returncode
        log.counts[f"exit {status}"] += 1
        compare_charges(folder)
        failed = status == 1 and ever_poisoned
        if more():
            run_between(folder, log)
        if status == 0:
            break
        if status not in AGAIN and not failed:
            sys.exit(f"a launch ended with {status}:\n{launch.said[-3000:]}")
    for rival in log.rivals:
        if rival.process.wait(300) not in AGAIN | {0, 1}:
            sys.exit(f"a rival ended with {rival.process.returncode}:\n{rival.said[-3000:]}")
    log.rivals.clear()


def run_between(folder: Path, log: Log) -> None:
    """Run another command, and perhaps kill it; what was finished stays, with its numbers."""
    name = log.random.choice(list(COMMANDS))
    before, kills = results(folder), log.random.random() < 0.4
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
    # Without results there is nothing to report, and while a rival trains nothing to remove; that is said.
    is_right = process.returncode in (0, -signal.SIGKILL) or (process.returncode == 2 and (not before or log.rivals))
    if not is_right or "Traceback" in said or {key: after.get(key) for key in before} != before:
        sys.exit(f"{name} ended with {process.returncode}; {len(before)} results before, {len(after)} after:\n{said}")


def _kill(kind: str) -> Fault:
    def kill(launch: Launch, chance: random.Random) -> bool:
        found = launch.children(PROCESSES[kind])
        with contextlib.suppress(psutil.Error):
            if found:
                chance.choice(found).kill()
                return True
        return False

    return kill


def _everything(launch: Launch, chance: random.Random) -> bool:
    """As a crash of the machine."""
    launch.end()
    return True


def _parent(launch: Launch, chance: random.Random) -> bool:
    """Kill the parent alone: the launch stops by itself."""
    children = psutil.Process(launch.process.pid).children(recursive=True)
    launch.process.kill()
    launch.process.wait(60)
    if psutil.wait_procs(children, timeout=120)[1]:
        sys.exit(f"a launch goes on without its parent:\n{launch.said[-3000:]}")
    return True


def _terminate(launch: Launch, chance: random.Random) -> bool:
    launch.process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        launch.process.wait(60)
    return True


def _pause(launch: Launch, chance: random.Random) -> bool:
    """Freeze a worker for a while."""
    found = launch.children(WORKER)
    with contextlib.suppress(psutil.Error):
        if found:
            process = chance.choice(found)
            process.suspend()
            time.sleep(chance.uniform(0.5, 8.0))
            process.resume()
            return True
    return False


def _rival(folder: Path, log: Log) -> bool:
    """Launch the same sweep a second time, which trains what it finds free, and is left alone."""
    if not any(rival.process.poll() is None for rival in log.rivals):
        log.rivals.append(Launch(folder))
    return True


def _database(launch: Launch, chance: random.Random) -> bool:
    """Lock the tracking database for a while: nobody reads or writes it."""
    database = launch.folder / product.STORE / "mlflow.db"
    if not database.exists():
        return False
    with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(database, timeout=1.0) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(chance.uniform(0.2, 6.0))
        return True
    return False


_FAULTS: dict[str, Fault] = {
    **{kind: _kill(kind) for kind in PROCESSES},
    "parent": _parent,
    "everything": _everything,
    "terminate": _terminate,
    "pause": _pause,
    "tracking": _database,
}


def compare(folder: Path, unbroken: Path, epochs: int) -> None:
    """Compare a finished sweep with the unbroken one: results, histories and MLflow; and nothing was trained twice."""
    if (results(folder), records_of(folder)) != (results(unbroken), records_of(unbroken)):
        sys.exit(f"{folder} ended with other numbers")
    for training, records in product.attempts(folder).items():
        result = json.loads((folder / product.STORE / "cells" / training / "result.json").read_text())
        if result["attempt"] != len(records):
            sys.exit(f"{training} was trained again after it was done: {records[-1]}")
    # A launch without tracking says that this command is left to do.
    done = goal_sweep(folder, "sync", "tiny.yaml")
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    check_mlflow(folder, epochs)


def compare_charges(folder: Path) -> None:
    """Check that no healthy cell was failed, or charged for what a neighbour in its process may have done.

    A cell that is alone in its process and is killed before it saves a state looks like one that kills its process.
    That counts, and three such deaths in a row would fail it.
    """
    for training, records in product.attempts(folder).items():
        cell = folder / product.STORE / "cells" / training.partition("/")[0] / "cell.json"
        if json.loads(cell.read_text())["label"].startswith(POISONED):
            continue
        counted = [one for one in records if one["counted"]]
        if len(counted) > 2 or any(one["shared_by"] > 1 for one in counted):
            sys.exit(f"a healthy cell was charged: {counted[-1]}")


def main() -> None:
    """Run rounds of faults for a while, compare each with the unbroken run, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=27.0, help="when to stop killing; what runs then ends by itself"
    )
    parser.add_argument("--kills", type=int, default=60, help="stop after this many killed processes")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
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


if __name__ == "__main__":
    main()
