"""What a worker process does with a unit: claim its trainings, train them, and record how each ended."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from goal_core.atomic import DamagedError
from goal_core.data import Dataset
from goal_core.errors import FencedError, GoalError
from goal_core.training import EpochDone, Listener, TrainingEvent, TrainingFailed, UnitPlan, train_unit
from runners.execution.inputs import (
    InputsDifferError,
    UnfitMachineError,
    check_machine,
    check_software,
    on_this_machine,
    open_inputs,
)
from runners.execution.memory import Chunks
from runners.execution.verdict import judge
from runners.store import (
    PATIENCE_S,
    AlreadyDoneError,
    LeaseHeldError,
    LeaseLostError,
    Store,
    TrainingFolder,
    charged_failures,
)
from sweeps import Training, Unit

HUNG = 70
"""Exit status of a worker that its watchdog ended."""
DEVICE_LOST = 71
"""Exit status of a worker whose GPU refuses everything since an error of one of its cells."""
RANK_LOST = 72
"""Exit status of a worker that has lost one of the processes that train its unit on several GPUs."""
NOT_RETRIED = ("storage", "inputs")
"""Kinds of failure of a disk or a machine that the same launch does not try again."""
UNCHARGED = (*NOT_RETRIED, "damaged")
"""Kinds of failure that are not the cell's fault."""
HOPELESS = ("diverged", "collapsed")
"""Kinds of failure that another attempt would repeat with the same numbers."""
STOP_CHECK_S = 1.0
"""Seconds between looks at the store for the driver's wish to stop."""
_LOOK_S = 2.0
"""Seconds between looks at whether a suspect has saved a state within its epoch."""
_RECORD_S = 30.0
"""Seconds that the record of a hang may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitJob:
    """A unit as it is sent to a worker."""

    unit: Unit
    plan: UnitPlan
    """The same unit in the form that the trainer takes."""
    store: str
    launch_id: str
    code: str
    """Hash of the driver's code; see `runners.execution.inputs.code_digest`."""
    software: Mapping[str, str]
    """The driver's versions; see `runners.execution.inputs.software`."""
    max_attempts: Mapping[Training, int]
    """Number of charged attempts allowed for each training, including those of earlier launches."""
    watchdog: int
    """Seconds without a sign of life after which the unit counts as hung; 0 disables the check."""
    rank: tuple[int, float] = (0, 0.0)
    """Units start in the order of their ranks, as far as they wait for a device."""
    shares: bool = False
    """Whether other launches may train units of the same sweep. One that another holds is then left to it whole."""


class _SavedError(Exception):
    """Ends a trial of suspects: they have saved a state, so none of them is what ended the process before."""


def run_unit(
    job: UnitJob,
    send: Callable[[Sequence[TrainingEvent]], None],
    *,
    node: str = "",
    node_lost: Callable[[str], bool] = lambda node: False,
    elsewhere: bool = False,
) -> None:
    """Run the trainings of a unit that are not done yet.

    When this returns, the store holds how each of them ended. An error of the whole unit (unreadable data, no GPU)
    fails each training and is not raised, because the driver decides whether to try again. If this process dies, the
    driver calls this again in another process, which finds out whether a training is at fault (`runners.execution.
    verdict`). If the driver asks its workers to stop, every training saves its exact state, and their attempts are left
    for the driver to end.

    Args:
        job: the unit.
        send: passes events on to the driver.
        node: Ray's id of this machine.
        node_lost: whether the machine of a given id is gone.
        elsewhere: whether another machine may train the unit if this one lacks something.

    Raises:
        UnfitMachineError: this machine lacks something, and another may train the unit. Nothing was claimed.
    """
    dataset: Dataset | Exception
    try:
        if elsewhere:
            check_machine(Store(job.store), job.launch_id, job.plan.device)
            check_software(job.software)
        dataset = open_inputs(job.unit, job.code)
    except UnfitMachineError:
        raise
    except (GoalError, OSError) as error:
        if elsewhere:
            host = socket.gethostname()
            raise UnfitMachineError(str(error) if host in str(error) else f"{host}: {error}") from error
        if isinstance(error, InputsDifferError):
            reason = str(error)
            send([TrainingFailed(key=one.key, kind="inputs", reason=reason, trace="") for one in job.unit.trainings])
            return
        dataset = error
    except Exception as error:
        dataset = error  # of which each training fails, with an attempt that records it
    worker = _Worker(job, send, node, dataset)
    verdict = judge(worker.store, job.unit.trainings, job.launch_id, node_lost)
    if verdict.charged:
        send(verdict.charged)
    for suspects in verdict.suspects:
        worker.train(suspects, until_saved=True)
    worker.train([training for training in job.unit.trainings if training not in verdict.alone])
    for training in verdict.alone:
        worker.train([training])
    worker.store.storage.close()


class _Worker:
    """Trains groups of a unit's trainings, one group after the other."""

    def __init__(
        self, job: UnitJob, send: Callable[[Sequence[TrainingEvent]], None], node: str, dataset: Dataset | Exception
    ) -> None:
        self._job, self._send, self._node, self._dataset = job, send, node, dataset
        self.store = Store(job.store, patience=PATIENCE_S)
        self._asked_to_stop = partial(self.store.drivers.is_asked_to_stop, job.launch_id)
        self._ended: set[str] = set()
        """Keys of the trainings that are done or failed."""

    def train(self, trainings: Sequence[Training], *, until_saved: bool = False) -> None:
        """Train a group side by side.

        Args:
            trainings: the group; those that ended or cannot be claimed are left out.
            until_saved: stop as soon as they have saved a state.
        """
        if self._asked_to_stop():
            return
        chunks = self._chunks(trainings)
        folders = self._claim(trainings, chunks)
        if not folders:
            return
        if until_saved:
            _log(folders, "tried apart from the rest of its unit, because a worker died without progress")
        chosen = tuple(one for one in self._job.plan.trainings if one.key in folders)
        with UnitListener(
            folders, self._send, self._job.watchdog, self._asked_to_stop, until_saved=until_saved, chunks=chunks
        ) as listener:
            try:
                if isinstance(self._dataset, Exception):
                    raise self._dataset
                plan = on_this_machine(replace(self._job.plan, trainings=chosen), self._job.unit, self.store)
                train_unit(chunks.of_plan(plan), folders, listener, self._dataset)
            except _SavedError:
                _release([folder for key, folder in folders.items() if key not in listener.ended])
            except Exception as error:
                left = [key for key in folders if key not in listener.ended]
                listener.events([TrainingFailed.because_of(key, error) for key in left])
        _flush([folder for key, folder in folders.items() if key not in listener.ended])
        self._ended |= listener.ended - listener.out_of_memory
        if again := [training for training in trainings if training.key in listener.out_of_memory]:
            self.train(again, until_saved=until_saved)

    def _chunks(self, trainings: Sequence[Training]) -> Chunks:
        """The chunks in which a group is trained: those of the training with the least memory."""
        asked = Chunks.of(self._job.plan)
        chunks = [asked]
        for training in trainings:
            with contextlib.suppress(OSError, DamagedError):
                chunks.append(asked.after(self.store.folder(training).attempts.all(), self._job.launch_id))
        return min(chunks, key=lambda one: one.size or one.batch)

    def _claim(self, trainings: Sequence[Training], chunks: Chunks) -> dict[str, TrainingFolder]:
        """Claim the trainings that are not done and have an attempt left. Returns their folders by key."""
        folders = {training.key: self.store.folder(training) for training in trainings if self._is_open(training)}
        shared_by, claimed = len(folders), 0
        for key, folder in list(folders.items()):
            try:
                folder.claim(self._job.launch_id, node=self._node, shared_by=shared_by, micro_batch=chunks.size)
                claimed += 1
            except (AlreadyDoneError, LeaseHeldError, LeaseLostError) as refusal:
                if self._job.shares and not claimed and not isinstance(refusal, AlreadyDoneError):
                    return {}  # whoever has the first has the unit; splitting it would compute its features twice
                del folders[key]  # an earlier attempt of this trial finished it, or another launch is training it
            except OSError as error:
                del folders[key]
                self._refuse(key, error)
        return folders

    def _is_open(self, training: Training) -> bool:
        if training.key in self._ended:
            return False
        folder = self.store.folder(training)
        try:
            if folder.result() is not None:
                return False
            attempts = folder.attempts.all()
        except DamagedError:
            return True  # the claim sets it aside
        except OSError as error:
            self._refuse(training.key, error)
            return False
        hopeless = any(attempt.final for attempt in attempts if attempt.launch_id == self._job.launch_id)
        return not hopeless and charged_failures(attempts) < self._job.max_attempts[training]

    def _refuse(self, key: str, error: OSError) -> None:
        """Report a training whose files cannot be used. It costs no attempt, and the others go on."""
        self._ended.add(key)
        self._send([TrainingFailed.because_of(key, error)])


def _release(folders: Sequence[TrainingFolder]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError, FencedError):
            folder.release("saved a state, so it goes on with the rest of its unit")


def _flush(folders: Sequence[TrainingFolder]) -> None:
    """Let what trainings have saved on their way to a stop arrive in the store."""
    for folder in folders:
        try:
            folder.flush()
        except (OSError, FencedError) as error:
            os.write(2, f"{folder}: not all that was saved is in the store: {error}\n".encode())


def _log(folders: Mapping[str, TrainingFolder], line: str) -> None:
    for folder in folders.values():
        with contextlib.suppress(OSError):
            folder.log(line)


class UnitListener(Listener):
    """Records failures, passes events on, shows the driver that the process is alive, and ends it when it hangs.

    Args:
        folders: the folders of the unit's trainings, by key.
        send: passes events on to the driver.
        watchdog: seconds without a step after which the process is ended; 0 disables this.
        asked_to_stop: whether the driver wants the unit to save and stop.
        until_saved: raise `_SavedError` as soon as the trainings have saved a state. Those that resumed at the same
            position save together; one that is ahead of the others has nothing to show until they reach it.
        chunks: how many pairs the trainings encode at a time; None where that is not known.
    """

    def __init__(
        self,
        folders: Mapping[str, TrainingFolder],
        send: Callable[[Sequence[TrainingEvent]], None],
        watchdog: int,
        asked_to_stop: Callable[[], bool] = lambda: False,
        *,
        until_saved: bool = False,
        chunks: Chunks | None = None,
    ) -> None:
        self.ended: set[str] = set()
        """Keys of the trainings that are done or failed."""
        self.out_of_memory: set[str] = set()
        """Keys of those that failed because a batch did not fit into memory, and can go on with smaller chunks."""
        self._chunks = chunks
        self._folders, self._send, self._limit, self._until_saved = folders, send, watchdog, until_saved
        self._asked_to_stop, self._stopping, self._asked_at = asked_to_stop, False, time.monotonic()
        self._seen = self._looked = time.monotonic()
        self._waiting = False
        """Whether the training waits for the driver, which may be suspended."""
        self._over = threading.Event()
        tasks = [self._beat, self._watch] if watchdog else [self._beat]
        self._threads = [threading.Thread(target=task, name="goal-sweep listener", daemon=True) for task in tasks]

    def __enter__(self) -> UnitListener:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()

    def step(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()
        if self._until_saved and self._seen - self._looked > _LOOK_S:
            self._looked = self._seen
            self._stop_if_saved()

    def alive(self) -> None:
        """Note a sign of life."""
        self._seen = time.monotonic()

    def lost(self, reason: str, kind: str) -> None:
        """End the process. The unit starts again as after any death; out of memory, with smaller chunks."""
        smaller = self._chunks.smaller if self._chunks and kind == "memory" else None
        if smaller:
            reason = f"out of memory with {self._chunks}; goes on with {smaller}. {reason}"
        self._end_process(reason, RANK_LOST, out_of_memory=smaller is not None)

    def stopping(self) -> bool:
        """Whether the driver has asked the unit to save and stop. It looks about once a second."""
        if not self._stopping and time.monotonic() - self._asked_at >= STOP_CHECK_S:
            self._asked_at, self._stopping = time.monotonic(), self._asked_to_stop()
        return self._stopping

    def events(self, events: Sequence[TrainingEvent]) -> None:
        """Write failures into the store, then send all events to the driver.

        An error after which the process cannot use its GPU any more ends the process: it would fail every cell, and
        which one caused it shows when they are tried apart.
        """
        self._seen = time.monotonic()
        events = [self._explained(event) for event in events]
        for event in events:
            if isinstance(event, TrainingFailed) and event.kind == "device":
                self._end_process(event.reason, DEVICE_LOST)
            if isinstance(event, TrainingFailed):
                self._fail(event)
            if not isinstance(event, EpochDone):
                self.ended.add(event.key)
        self._waiting = True
        try:
            self._send(events)
        finally:
            self._seen, self._waiting = time.monotonic(), False
        if self._until_saved and any(isinstance(event, EpochDone) for event in events):
            self._stop_if_saved()

    def _explained(self, event: TrainingEvent) -> TrainingEvent:
        """The event; of a batch that did not fit into memory it says how its training goes on."""
        smaller = self._chunks.smaller if self._chunks else None
        if not (isinstance(event, TrainingFailed) and event.kind == "memory" and smaller):
            return event
        self.out_of_memory.add(event.key)
        return replace(event, reason=f"out of memory with {self._chunks}; goes on with {smaller}. {event.reason}")

    def _stop_if_saved(self) -> None:
        left = [folder for key, folder in self._folders.items() if key not in self.ended]
        if any(folder.has_progressed() for folder in left):
            raise _SavedError

    def _fail(self, event: TrainingFailed) -> None:
        folder = self._folders[event.key]
        try:
            smaller = event.key in self.out_of_memory
            charged, final = event.kind not in UNCHARGED and not smaller, event.kind in HOPELESS
            if smaller:
                folder.log(event.reason)
            folder.fail(event.reason, event.trace, charged=charged, final=final, out_of_memory=smaller)
        except LeaseLostError:
            return  # the cell's new owner decides how it ended
        except OSError as error:
            # The disk that made the cell fail cannot store the failure either; the driver still learns of it.
            os.write(2, f"{event.reason} (and its record could not be written: {error})\n".encode())

    def _beat(self) -> None:
        """Touch the record of an attempt every few seconds. The driver looks at its time (`SignsOfLife`)."""
        while True:
            folder = next((folder for key, folder in self._folders.items() if key not in self.ended), None)
            if folder is not None and folder.attempt:
                with contextlib.suppress(Exception):
                    folder.attempts.touch(folder.attempt)
            if self._over.wait(beat_seconds(self._limit)):
                return

    def _watch(self) -> None:
        """End the process when its training hangs."""
        pause, woke = beat_seconds(self._limit), time.monotonic()
        while not self._over.wait(pause):
            slept, woke = time.monotonic() - woke, time.monotonic()
            # A process that was suspended (a stopped job, a closed laptop) did not hang, nor does one whose driver is,
            # nor one that waits for the store.
            if slept > 2 * pause + 1 or self._waiting or any(folder.is_waiting for folder in self._folders.values()):
                self._seen = woke
            if woke - self._seen >= self._limit:
                self._end_process(f"hung: no step for {woke - self._seen:.0f} s (resources.watchdog = {self._limit})")

    def _end_process(self, reason: str, status: int = HUNG, *, out_of_memory: bool = False) -> None:
        try:
            # A disk that hangs must not keep the process from ending.
            record = threading.Thread(target=self._record_death, args=[reason, out_of_memory], daemon=True)
            record.start()
            record.join(timeout=_RECORD_S)
        finally:
            os._exit(status)  # the stuck thread cannot be asked to stop

    def _record_death(self, reason: str, out_of_memory: bool) -> None:
        """End the attempts on behalf of their process. If the store refuses, the next worker sees that it died."""
        left = {key: folder for key, folder in self._folders.items() if key not in self.ended and folder.attempt}
        for folder in left.values():
            with contextlib.suppress(OSError, FencedError, ValueError):
                folder.lose(reason, out_of_memory=out_of_memory)
        _log(left, reason)


def beat_seconds(watchdog: int) -> float:
    """Seconds between the signs of life of a unit whose watchdog waits this long."""
    return min(5.0, watchdog / 4) if watchdog else 5.0
