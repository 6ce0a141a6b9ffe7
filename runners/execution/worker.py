"""What a worker process does with a unit: claim its trainings, train them, and record how each ended."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from goal_sweep.goal_core.basics.atomic import DamagedError
from goal_sweep.goal_core.basics.devices import forget_peak, peak_memory_mb
from goal_sweep.goal_core.basics.errors import FencedError, GoalError, listening
from goal_sweep.goal_core.basics.plugins import exits_are_errors
from goal_sweep.goal_core.data import Dataset
from goal_sweep.goal_core.training import TrainingEvent, TrainingFailed
from goal_sweep.goal_core.training.train import train_unit
from goal_sweep.runners.execution.inputs import (
    InputsDifferError,
    UnfitMachineError,
    check_machine,
    check_software,
    on_this_machine,
    open_inputs,
)
from goal_sweep.runners.execution.memory import Chunks
from goal_sweep.runners.execution.unit_job import UnitJob
from goal_sweep.runners.execution.unit_listener import SavedError, UnitListener, log_to_all
from goal_sweep.runners.execution.verdict import judge
from goal_sweep.runners.store import (
    PATIENCE_S,
    AlreadyDoneError,
    Attempt,
    LeaseHeldError,
    LeaseLostError,
    Store,
    TrainingFolder,
    charged_failures,
)
from goal_sweep.sweeps import Training


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
    warnings = list[str]()
    try:
        if elsewhere:
            check_machine(Store(job.store), job.launch_id, job.plan.device)
            check_software(job.software)
        for plugin in job.plan.plugins:
            plugin.run()
        with listening(warnings.append):
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
    worker = _Worker(job, send, node, dataset, warnings)
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
        self,
        job: UnitJob,
        send: Callable[[Sequence[TrainingEvent]], None],
        node: str,
        dataset: Dataset | Exception,
        warnings: Sequence[str],
    ) -> None:
        self._job, self._send, self._node, self._dataset, self._warnings = job, send, node, dataset, warnings
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
        job, plan = self._job, self._job.plan
        asked = Chunks.of(plan.stage, plan.data.format)
        attempts = self._open(trainings)
        tried = (asked.after(each, job.launch_id) for each in attempts.values())
        chunks = min([asked, *tried], key=lambda one: one.size or one.batch)  # of the training with the least memory
        folders = self._claim(attempts, chunks)
        if not folders:
            return
        self._send(())  # it has begun
        for line in self._warnings:
            log_to_all(folders, line)
        if until_saved:
            log_to_all(folders, "tried apart from the rest of its unit, because a worker died without progress")
        chosen = tuple(one for one in plan.trainings if one.key in folders)
        listener = UnitListener(
            folders,
            self._send,
            job.watchdog,
            self._asked_to_stop,
            until_saved=until_saved,
            chunks=chunks,
        )
        with listener, listening(listener.warned):
            try:
                forget_peak()
                if isinstance(self._dataset, Exception):
                    raise self._dataset
                plan = on_this_machine(replace(plan, trainings=chosen), job.unit, self.store)
                with exits_are_errors():
                    train_unit(chunks.of_plan(plan), folders, listener, self._dataset)
            except SavedError:
                for key in folders.keys() - listener.ended:
                    with contextlib.suppress(OSError, FencedError):
                        folders[key].release("saved a state, so it goes on with the rest of its unit")
            except Exception as error:
                left = [key for key in folders if key not in listener.ended]
                listener.events([TrainingFailed.because_of(key, error) for key in left])
        self._ended |= listener.ended - listener.out_of_memory
        if again := [training for training in trainings if training.key in listener.out_of_memory]:
            self.train(again, until_saved=until_saved)

    def _open(self, trainings: Sequence[Training]) -> dict[Training, list[Attempt]]:
        """The trainings that are not done and have an attempt left, each with its attempts so far."""
        found = {}
        for training in trainings:
            folder, attempts = self.store.folder(training), list[Attempt]()
            try:
                if training.key in self._ended or folder.result() is not None:
                    continue
                attempts = folder.attempts.all()
            except DamagedError:
                pass  # the claim sets it aside
            except OSError as error:
                self._refuse(training.key, error)
                continue
            hopeless = any(attempt.final for attempt in attempts if attempt.launch_id == self._job.launch_id)
            if not hopeless and charged_failures(attempts) < self._job.max_attempts[training]:
                found[training] = attempts
        return found

    def _claim(self, trainings: Collection[Training], chunks: Chunks) -> dict[str, TrainingFolder]:
        """Claim trainings. Returns the folders by key of those that this process has now."""
        claimed: dict[str, TrainingFolder] = {}
        how = {"micro_batch": chunks.size, "shared_by": len(trainings)}
        for training in trainings:
            folder = self.store.folder(training)
            try:
                self.store.write_cell(training.cell)
                folder.claim(self._job.launch_id, node=self._node, **how)
            except (AlreadyDoneError, LeaseHeldError, LeaseLostError):
                continue  # an earlier attempt of this trial finished it, or another launch has it
            except OSError as error:
                self._refuse(training.key, error)
            else:
                folder.memory_mb, claimed[training.key] = peak_memory_mb, folder
        return claimed

    def _refuse(self, key: str, error: OSError) -> None:
        """Report a training whose files cannot be used. It costs no attempt, and the others go on."""
        self._ended.add(key)
        self._send([TrainingFailed.because_of(key, error)])
