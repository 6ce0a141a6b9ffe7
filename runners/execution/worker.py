"""What a worker process does with a unit: claim its trainings, train them, and record how each ended."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from goal_core.basics.atomic import DamagedError
from goal_core.basics.devices import forget_peak, peak_memory_mb
from goal_core.basics.errors import FencedError, GoalError
from goal_core.data import Dataset
from goal_core.training import TrainingEvent, TrainingFailed, train_unit
from runners.execution.inputs import (
    InputsDifferError,
    UnfitMachineError,
    check_machine,
    check_software,
    on_this_machine,
    open_inputs,
)
from runners.execution.memory import Chunks
from runners.execution.unit_line import UnitJob
from runners.execution.unit_listener import SavedError, UnitListener, log_to_all
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
from sweeps import Training


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
        dataset = open_inputs(job.unit, job.code, Store(job.store).indexes)
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
            until_saved: stop after the first epoch of which they have saved a state.
        """
        if self._asked_to_stop():
            return
        chunks = self._chunks(trainings)
        folders = self._claim(trainings, chunks)
        if not folders:
            return
        self._send(())  # it has begun
        if until_saved:
            log_to_all(folders, "tried apart from the rest of its unit, because a worker died without progress")
        chosen = tuple(one for one in self._job.plan.trainings if one.key in folders)
        with UnitListener(
            folders,
            self._send,
            self._job.watchdog,
            self._asked_to_stop,
            until_saved=until_saved,
            chunks=chunks,
            units_per_gpu=self._job.plan.units_per_gpu,
        ) as listener:
            try:
                forget_peak()
                if isinstance(self._dataset, Exception):
                    raise self._dataset
                plan = on_this_machine(replace(self._job.plan, trainings=chosen), self._job.unit, self.store)
                train_unit(chunks.of_plan(plan), folders, listener, self._dataset)
            except SavedError:
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
                folder.claim(
                    self._job.launch_id,
                    node=self._node,
                    shared_by=shared_by,
                    micro_batch=chunks.size,
                    units_per_gpu=self._job.plan.units_per_gpu,
                )
                folder.memory_mb = peak_memory_mb
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
