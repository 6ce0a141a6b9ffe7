"""What a worker does with a unit: check its machine, claim the trainings, train them, and record how each ended.

It is the only process that writes to a training while it trains. It ends itself when its training hangs, or when an
error leaves it without its GPU.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from goal_sweep.goal_core.basics.atomic import StorageError
from goal_sweep.goal_core.basics.errors import FencedError, GoalError, listening
from goal_sweep.goal_core.data.dataset import Dataset
from goal_sweep.goal_core.training import EpochDone, TrainingEvent, TrainingFailed
from goal_sweep.goal_core.training.config import OF_ONE_TRAINING
from goal_sweep.goal_core.training.plan import Callback, TrainingPlan, UnitPlan
from goal_sweep.goal_core.training.train import train_unit
from goal_sweep.runners.execution.job import UnfitMachineError, UnitJob, check_machine, open_inputs
from goal_sweep.runners.store import BEST, PATIENCE_S, Store, TrainingFolder
from goal_sweep.runners.store.storage import LOCAL
from goal_sweep.runners.store.training import ClaimedError, ClaimLostError, renewed
from goal_sweep.sweeps import ExecutionConfig, ResourceConfig, Training, Unit

Send = Callable[..., None]
"""Passes a sequence of events on to the driver, and whatever else it is given by name."""
UNCOUNTED = ("storage", "refused", "inputs", "damaged")
"""Kinds of failure that are not the cell's fault, but that of a disk, a machine or another training."""
FINAL = ("diverged", "collapsed")
"""Kinds of failure that another attempt would repeat with the same numbers."""
ENDED_ITSELF = 70
"""Exit status of a worker that hung, or lost its GPU."""
STOP_CHECK_S = 1.0
"""Seconds between looks at the store for the driver's wish to stop."""
_RECORD_S = 30.0
"""Seconds that the record of a hang may take."""


def run_unit(job: UnitJob, send: Send) -> None:
    """Train the trainings of a unit that are not done, and that nobody else trains.

    When this returns, the store holds how each of them ended. An error of the whole unit (unreadable data, no GPU)
    fails each training and is not raised. `UnfitMachineError` says that another machine may train it.
    """
    store, warnings = Store(job.store, patience=PATIENCE_S), list[str]()
    dataset: Dataset | Exception
    try:
        if job.elsewhere:
            check_machine(store, job)
        for plugin in job.plugins:
            plugin.run()
        with listening(warnings.append):
            dataset = open_inputs(job.unit, job.code, store.indexes)
    except UnfitMachineError:
        raise
    except (Exception, SystemExit) as error:  # a plugin's, too
        if job.elsewhere and isinstance(error, GoalError | OSError):
            raise UnfitMachineError(f"{socket.gethostname()}: {error}") from error
        dataset = error if isinstance(error, Exception) else GoalError(f"a plugin left with {error}")
    folders = _claim(job, store, send)
    send(claimed=[*folders])
    with renewed([*folders.values()]):
        for line in warnings:
            _log_to_all(folders, line)
        _train(job, store, folders, dataset, send)
    store.storage.close()


def _claim(job: UnitJob, store: Store, send: Send) -> dict[str, TrainingFolder]:
    """Claim a unit's trainings. Returns the folders, by key, of those that this process has now."""
    claimed: dict[str, TrainingFolder] = {}
    for training in job.unit.trainings:
        folder = store.folder(training)
        try:
            store.write_cell(training.cell)
            folder.claim(job.launch, len(job.unit.trainings))
        except (ClaimedError, ClaimLostError):
            continue
        except OSError as error:
            send([TrainingFailed.because_of(training.key, error)])
        else:
            claimed[training.key] = folder
    return claimed


def _train(
    job: UnitJob, store: Store, folders: Mapping[str, TrainingFolder], dataset: Dataset | Exception, send: Send
) -> None:
    """Train claimed trainings side by side. Those that run out of memory go on with smaller chunks of each batch.

    The gradient stays that of the whole batch (`goal_core.models.batch_rows`), so nothing but time is lost.
    """
    stage, left = job.unit.stage, dict(folders)
    while left:
        smaller = stage.smaller_chunk(job.unit.trainings[0].cell.data.format)
        callback = UnitCallback(left, send, job.resources.watchdog, lambda: store.is_asked_to_stop(job.launch), smaller)
        with callback, listening(callback.warned):
            try:
                if isinstance(dataset, Exception):
                    raise dataset
                plan = unit_plan(job.unit, store, job.resources, job.execution)
                own = tuple(one for one in plan.trainings if one.key in left)
                train_unit(replace(plan, trainings=own, stage=stage), left, callback, dataset)
            except Exception as error:
                callback.events([TrainingFailed.because_of(key, error) for key in left.keys() - callback.ended])
        for key in left.keys() - callback.ended - callback.out_of_memory:  # the driver has asked it to stop
            with contextlib.suppress(OSError, FencedError):
                left[key].end("interrupted", "its launch was stopped")
        left = {key: left[key] for key in left if key in callback.out_of_memory}
        stage = replace(stage, micro_batch=smaller)


def unit_plan(unit: Unit, store: Store, resources: ResourceConfig, execution: ExecutionConfig) -> UnitPlan:
    """What the trainer takes of a unit."""
    first = unit.trainings[0]

    def plan(training: Training) -> TrainingPlan:
        before, own = training.before, {name: getattr(training.stage, name) for name in OF_ONE_TRAINING}
        return TrainingPlan(
            key=training.key,
            cell_id=training.cell.id,
            objective=training.cell.objective,
            init=store.folder(before).path(BEST) if before else None,
            init_key=before.key if before else "",
            own={name: value for name, value in own.items() if value != getattr(unit.stage, name)},
        )

    return UnitPlan(
        trainings=tuple(plan(training) for training in unit.trainings),
        data=first.cell.data,
        model=first.cell.model,
        seed=first.cell.seed,
        stage=unit.stage,
        tested=first.cell.tested,
        precision=first.precision,
        device="cuda" if resources.gpus else "cpu",
        threads=resources.cpus,
        loader_workers=resources.loader_workers,
        compile=execution.compile,
        deterministic=execution.deterministic,
        sharing=execution.sharing,
        cache=store.features,
        packs=store.packs,
    )


class UnitCallback(Callback):
    """Follows a unit's training: records failures, passes events on, and ends the process when it hangs.

    Args:
        watchdog: seconds without a step after which the process is ended; 0 disables this.
        smaller: pairs at a time with which a training that runs out of memory can go on; 0 where it cannot.
    """

    def __init__(
        self,
        folders: Mapping[str, TrainingFolder],
        send: Send,
        watchdog: int,
        asked_to_stop: Callable[[], bool] = lambda: False,
        smaller: int = 0,
    ) -> None:
        self.ended: set[str] = set()
        """Keys of the trainings that are done or failed."""
        self.out_of_memory: set[str] = set()
        """Keys of those that go on with smaller chunks."""
        self._folders, self._send, self._smaller = folders, send, smaller
        self._limit = watchdog and max(watchdog, PATIENCE_S * any(one.storage is not LOCAL for one in folders.values()))
        self._asked_to_stop, self._stopping, self._asked_at = asked_to_stop, False, time.monotonic()
        self._seen = time.monotonic()
        self._waiting = False
        """Whether the training waits for the driver, which may be suspended."""
        self._over = threading.Event()

    def __enter__(self) -> UnitCallback:
        if self._limit:
            threading.Thread(target=self._watch, name="goal-sweep watchdog", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()

    alive = step

    def warned(self, line: str) -> None:
        """Add a line to the log of every training that has not ended."""
        _log_to_all({key: folder for key, folder in self._folders.items() if key not in self.ended}, line)

    def stopping(self) -> bool:
        """Whether the driver has asked the unit to save and stop. It looks about once a second."""
        if not self._stopping and time.monotonic() - self._asked_at >= STOP_CHECK_S:
            self._asked_at, self._stopping = time.monotonic(), self._asked_to_stop()
        return self._stopping

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Write failures into the store, then send the events to the driver.

        An error that costs the process its GPU ends it: which cell caused it shows when they are tried apart.
        """
        self._seen = time.monotonic()
        passed_on = []
        for event in events:
            if isinstance(event, TrainingFailed):
                if event.kind == "device":
                    self._end_process(event.reason)
                if event.kind == "memory" and self._smaller:
                    self.out_of_memory.add(event.key)
                    self._folders[event.key].log(f"out of memory; goes on with {self._smaller} pairs at a time")
                    continue
                self._fail(event)
            if not isinstance(event, EpochDone):
                self.ended.add(event.key)
            passed_on.append(event)
        self._waiting = True
        try:
            self._send(passed_on)
        finally:
            self._seen, self._waiting = time.monotonic(), False

    def _fail(self, event: TrainingFailed) -> None:
        how = {"counted": event.kind not in UNCOUNTED, "final": event.kind in FINAL}
        try:
            self._folders[event.key].end("failed", event.reason, trace=event.trace, **how)
        except FencedError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that made the cell fail cannot store the failure either; the driver still learns of it.
            os.write(2, f"{event.reason} (and its record could not be written: {error})\n".encode())

    def _watch(self) -> None:
        pause, woke = min(5.0, self._limit / 4), time.monotonic()
        while not self._over.wait(pause):
            slept, woke = time.monotonic() - woke, time.monotonic()
            # A process that was suspended (a stopped job, a closed laptop) did not hang, nor does one whose driver is.
            if slept > 2 * pause + 1 or self._waiting:
                self._seen = woke
            if woke - self._seen >= self._limit:
                self._end_process(f"hung: no step for {woke - self._seen:.0f} s (resources.watchdog = {self._limit})")

    def _end_process(self, reason: str) -> None:
        try:
            # A disk that hangs must not keep the process from ending.
            record = threading.Thread(target=self._record_end, args=[reason], daemon=True)
            record.start()
            record.join(timeout=_RECORD_S)
        finally:
            os._exit(ENDED_ITSELF)  # the stuck thread cannot be asked to stop

    def _record_end(self, reason: str) -> None:
        """End the attempts. Whose fault it was the driver finds out."""
        left = {key: folder for key, folder in self._folders.items() if key not in self.ended and folder.attempt}
        _log_to_all(left, reason)
        for folder in left.values():
            with contextlib.suppress(OSError, FencedError, ValueError):
                folder.end("lost", reason)


def _log_to_all(folders: Mapping[str, TrainingFolder], line: str) -> None:
    """Add a line to the log of every training, as far as the disk takes it."""
    for folder in folders.values():
        with contextlib.suppress(StorageError):
            folder.log(line)
